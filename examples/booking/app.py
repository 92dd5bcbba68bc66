"""The CDK app of the example."""

from aws_cdk import App
from booking_stack import BookingStack

app = App()
BookingStack(app, "Booking", description="Trips that are booked in several states, and written in the last one")
app.synth()
