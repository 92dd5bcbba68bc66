"""What is looked at: each check one function whose name is its sentence, with what is assumed and where AWS says so."""
