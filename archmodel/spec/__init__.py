"""The numbers as a person writes them: frozen attrs classes and the readers that fill them."""
