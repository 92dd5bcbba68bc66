"""CDK constructs of ticketlock."""
