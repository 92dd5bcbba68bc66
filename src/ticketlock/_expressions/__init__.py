"""DynamoDB's expressions evaluated here: conditions, projections and updates, on items that a program has at hand."""
