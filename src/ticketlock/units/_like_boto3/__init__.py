"""A unit with the methods of boto3's low-level client."""

from ticketlock.units._like_boto3._client import UnitClient, UnitClientFace
from ticketlock.units._like_boto3._low_level import LowLevelUnitOfWork, Reply, SdkClient
