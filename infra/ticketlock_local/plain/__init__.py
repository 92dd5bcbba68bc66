"""`make template`: the construct as a plain CloudFormation template, for stacks that are deployed without the CDK."""
