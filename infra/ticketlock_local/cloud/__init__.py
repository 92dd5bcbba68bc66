"""The stack on an emulator: the CDK's own command, the deployment, and the cloud of `make local`."""

from ticketlock_local.cloud.cdk_cli import lint
from ticketlock_local.cloud.deploy import ExecutionsUnfinished, client_arguments, deploy, start, warm_up
