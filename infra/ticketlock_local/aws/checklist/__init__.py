"""The checks: one function each, named by its sentence, with the assumption and the AWS page that states it."""
