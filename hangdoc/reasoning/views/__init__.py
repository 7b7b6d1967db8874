"""What a document, a page or a screen shows of a run besides its findings."""
