"""Container images: their build context, and the engines' command lines that build and run them."""
