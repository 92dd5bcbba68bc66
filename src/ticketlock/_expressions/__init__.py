"""Evaluates DynamoDB's conditions, projections and updates on items in memory."""
