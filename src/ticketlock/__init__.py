"""FIFO locks with fencing tokens for DynamoDB."""

__version__ = "0.1.0"
