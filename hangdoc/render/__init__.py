"""The fourth room: a finished Diagnosis becomes text, JSON or HTML; nothing is computed here."""
