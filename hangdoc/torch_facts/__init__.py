"""What hangdoc knows of torch and of frameworks: names of files, functions, operations and threads."""
