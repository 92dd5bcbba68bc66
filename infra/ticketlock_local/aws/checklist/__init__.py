"""The checks: one function each, named by its sentence, with what is assumed and where AWS says so."""
