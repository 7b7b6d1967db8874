"""GPUs: the cards, their links, the kernel's messages about them, and the libraries that use them."""
