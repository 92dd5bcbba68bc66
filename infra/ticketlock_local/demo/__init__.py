"""`make demo`: executions that wait for each other, what they show, and their pictures."""
