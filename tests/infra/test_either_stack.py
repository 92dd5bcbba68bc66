"""What names resources of two stacks stays in its own one, unless the other waits for that one, for whatever reason."""

import pytest
from aws_cdk import App, CfnOutput, NestedStack, Stack, Tags
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct
from kit.stacks import machine
from ticketlock_cdk.either_stack import either_stack, scopes_of


class Two:
    """Two queues in stacks of their own, a third stack, and a topic that names both queues, in either stack."""

    def __init__(self, outdir, nested="", stabilises=False):
        app = App(outdir=outdir, context={"@aws-cdk/core:aspectStabilization": stabilises})
        self.here, self.there, self.third = (Stack(app, name) for name in ("Here", "There", "Third"))
        self.in_here, self.in_there = (
            NestedStack(stack, "Nested") if stack.node.id in nested else stack for stack in (self.here, self.there)
        )
        if nested == "together":
            self.in_here, self.in_there = (NestedStack(self.third, name) for name in ("Here", "There"))
        self.mine, self.theirs = sqs.Queue(self.in_here, "Mine"), sqs.Queue(self.in_there, "Theirs")
        self.place = either_stack(Construct(self.in_here, "Own"), "Either", Construct(self.in_there, "Other"))
        for scope in scopes_of(self.place):
            sns.Topic(scope, "Both", display_name=f"{self.mine.queue_name}{self.theirs.queue_name}")
        self.app = app
        # Aspects of all kinds come before it.
        Tags.of(app).add("team", "shipping")

    def where(self):
        """The stack in which the topic is deployed."""
        self.app.synth()
        [scope] = scopes_of(self.place)
        return Stack.of(scope)


def by_a_resource(two):
    sns.Topic(two.in_there, "Topic", display_name=two.mine.queue_name)


def through_a_third(two):
    by_the_third(two)
    CfnOutput(two.there, "Output", value=two.third.node.find_child("Topic").topic_arn)


def by_the_third(two):
    sns.Topic(two.third, "Topic", display_name=two.mine.queue_name)


def in_a_definition(two):
    machine(two.there, chain=sfn.Pass(two.there, "Pass", result=sfn.Result.from_object({"a": two.mine.queue_arn})))


def of_constructs(two):
    two.theirs.node.add_dependency(two.mine)


def of_stacks(two):
    two.there.add_stack_dependency(two.here)


def the_other_way(two):
    sns.Topic(two.in_here, "Topic", display_name=two.theirs.queue_name)


@pytest.mark.parametrize("waits", [by_a_resource, through_a_third, in_a_definition, of_constructs, of_stacks])
def test_it_is_in_the_other_stack_if_that_one_waits_for_its_own_however_and_whenever_it_began_to(waits, outdir):
    two = Two(outdir)
    waits(two)
    assert two.where() is two.there
    assert [two.here.dependencies, two.here in two.there.dependencies] == [[], True]


@pytest.mark.parametrize("waits", [None, the_other_way, by_the_third])
def test_it_stays_in_its_own_stack_otherwise(waits, outdir):
    two = Two(outdir)
    if waits is not None:
        waits(two)
    assert two.where() is two.here
    assert [two.here.dependencies, two.there.dependencies] == [[two.there], []]


@pytest.mark.verify("the same steps between other stacks")
@pytest.mark.parametrize("nested", ["Here", "There", "Here and There", "together"])
@pytest.mark.parametrize("waits", [by_a_resource, the_other_way])
def test_nested_stacks_wait_with_the_stacks_around_them(nested, waits, outdir):
    two = Two(outdir, nested)
    waits(two)
    assert two.where() is (two.in_there if waits is by_a_resource else two.in_here)


@pytest.mark.verify("stacks of its own, synthesised")
@pytest.mark.parametrize("stabilises", [True, False])
def test_a_tag_reaches_it_wherever_it_is(stabilises, outdir, synthesise):
    two = Two(outdir, stabilises=stabilises)
    by_a_resource(two)
    tagged = synthesise(two.where()).of_type("AWS::SNS::Topic").values()
    assert [each["Tags"] for each in tagged] == [[{"Key": "team", "Value": "shipping"}]] * 2
