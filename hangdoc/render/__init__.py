"""The fourth stage: it turns a finished Diagnosis into text, JSON or HTML, and computes nothing."""
