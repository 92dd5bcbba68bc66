"""What is made of AWS for units of work."""
