"""The construct: a lock table, its functions and the state machine that runs one task at a time for each entity."""

from collections.abc import Mapping, Sequence

from aws_cdk import Annotations, Duration, RemovalPolicy, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from ticketlock.locks import DEFAULT_NAMESPACE
from ticketlock.workflow import BEATS_AN_EXECUTION
from ticketlock_cdk.checks import check_construct
from ticketlock_cdk.ended_executions import EndedExecutions
from ticketlock_cdk.environment import Environment, environment_of
from ticketlock_cdk.functions import MEMORY_MB, Hosting, new_dead_letter_queue
from ticketlock_cdk.lock import grants
from ticketlock_cdk.lock.attached import AllAttached
from ticketlock_cdk.lock.lock_functions import LockFunctions
from ticketlock_cdk.lock.monitoring import AlarmThresholds, LockMetrics, LockMonitoring
from ticketlock_cdk.lock.serialize_machine import SerializeMachine
from ticketlock_cdk.lock.serialized import Protected, RecordWaitOrPath, Serialized, work_of
from ticketlock_cdk.lock.settings import HandOver, LockSettings, RecordWait
from ticketlock_cdk.lock.step_roles import StepRoles
from ticketlock_cdk.lock.targets import EXPRESS, Target, check_all, executions_arn, is_express, parse_targets
from ticketlock_cdk.machine_keys import key_arn_of, key_arn_of_durable
from ticketlock_cdk.monitoring import service_name_of
from ticketlock_cdk.network import Network
from ticketlock_cdk.tables import LOCKS, let_logs_use, new_or_given

_LEASE = Duration.seconds(60)
_POLL = Duration.seconds(5)
_THRESHOLDS = AlarmThresholds()
_ARM = lambda_.Architecture.ARM_64


class TicketLock(LockMetrics, Construct):
    """Workflows that run one at a time for each entity, in the order of their tickets.

    Args:
        table: an existing table of this account and Region with the string keys ``pk`` and ``sk`` and time to live on
            ``expiresAt``, as a construct, name or ARN; a new one otherwise. The keys and the time to live of a table by
            name or ARN, and of an imported table, cannot be checked here.
        lease: how long a grant lasts without renewal: whole, even seconds, 10 to 604,800; renewed at its half-life.
        row_lease: how long a place far behind in the queue lasts without renewal: whole, even seconds, from the lease
            to 604,800; by default ten minutes, or the lease if it is longer. Not used with polling.
        poll: how long the first in line sleeps at most, if it polls, and if it is woken while the holder's lease or its
            own record wait is about to end: whole seconds, at least 1, at most half the lease. If it polls, longer
            after waits of more than an hour.
        default_record_wait: the record wait of an execution whose input has no ``recordWaitSeconds``.
        permits: how many may hold a lock at once, for executions and fragments that do not set it themselves: 1 to
            100. A deployment may change it: from then on each lock of such executions has the new number. Executions
            that set another number than their lock's fail with ``PermitsMismatch``, unless an operator has set a limit.
        hand_over: how a waiter learns that its turn may have come: it is woken (callback), or it polls.
        heartbeat: False for work that always ends within the lease, or fails after ``work_timeout``: no renewal. It
            makes two transitions fewer.
        work_timeout: without heartbeat, how long the work may take: whole seconds, at most three quarters of the lease
            less 5 seconds, which is the default. A function's own timeout should not be longer.
        polls_an_execution: after so many polls another execution continues a wait: with callback 2 to 450, which is
            the default; with polling 2 to 2,000.
        beats_an_execution: after so many heartbeats another execution continues a hold: 2 to 2,000.
        targets: the functions and Standard state machines that may be run, as constructs or as ARNs. An execution
            must name exactly one of these ARNs; a version or an alias is a separate target. An Express state machine is
            refused if its type is known; an ARN does not tell its type, and such a target fails when it runs.
        retired_targets: former targets: new executions may not name them; executions already accepted may still run
            them.
        removal_policy: what happens to a new table, the logs and the dead letters when they are removed from the stack.
            By default they stay, and if the deployment that makes them is rolled back, all but the table are deleted
            again. With ``RETAIN`` they stay then, too; the table is protected from deletion unless it is ``DESTROY``.
        log_retention: how long logs are kept.
        log_level: which events of the lock's own executions are logged: all, errors, or none. All cost some $6 of each
            million executions.
        tracing: whether X-Ray traces the functions and the lock's own executions, which it bills. In China it traces no
            functions.
        encryption_key: your KMS key for a new table, the logs, the dead letters, and the state machines: their
            definitions and the histories of their executions. An existing table keeps its own.
        vpc: a network for the functions, from which they must reach DynamoDB and Step Functions, and Lambda if durable
            functions are attached.
        vpc_subnets: which of its subnets.
        security_groups: those of the functions; by default a new one without inbound rules.
        memory_size: the functions' memory, in MB: 256 to 10,240. More is faster, and costs more.
        architecture: that of the functions' processors.
        snap_start: start all functions except the clean-up's from snapshots, which Lambda bills.
        clean_up_concurrency: how many clean-ups run at once: 1 to 1,000, reserved from the account's concurrency. So a
            mass failure takes none from heartbeats. Ten handle some 300 clean-ups a second, if these find
            nothing to do. By default there is no limit and no reservation: Lambda refuses one that leaves less than 100
            to other functions, and a new account may have less than that in all.
        dashboard: make a CloudWatch dashboard.
        dashboard_live: show on it, at each refresh, the busy locks and what to type next: by a function that only reads
            the table. Who is to see it must be allowed to invoke the function.
        alarms: make CloudWatch alarms.
        alarm_thresholds: when the alarms fire.
        alarm_actions: what the alarms do when they fire. SNS topics are notified when they are over, too.
        alarm_topic: an SNS topic that the alarms notify, when they fire and when they are over.

    Raises:
        ValueError: a setting is out of its bounds; the message names it, its value and what is allowed.

    Attributes:
        table: the lock table.
        list_command: what to type to see who waits: the ticketlock command, with the table's name, for an output.
        state_machine: the serialised workflow.
        take_ticket, wait_for_wake_up, check_position, heartbeat, release, clean_up: its functions.
        dead_letter_queue: the events of ended executions whose clean-up failed.
        service_name: the dimension ``service`` of its metrics, and its name in the logs.
        alarms: its alarms by what they watch, such as ``LostLeases``; empty unless ``alarms`` is True.
        dashboard: its dashboard; None unless ``dashboard`` is True.
        live_report: the function of ``dashboard_live``; None without it.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        table: dynamodb.ITable | str | None = None,
        lease: Duration = _LEASE,
        row_lease: Duration | None = None,
        poll: Duration = _POLL,
        default_record_wait: RecordWait = "Infinity",
        permits: int = 1,
        hand_over: HandOver = HandOver.CALLBACK,
        heartbeat: bool = True,
        work_timeout: Duration | None = None,
        polls_an_execution: int | None = None,
        beats_an_execution: int = BEATS_AN_EXECUTION,
        targets: Sequence[lambda_.IFunction | sfn.IStateMachine | str] = (),
        retired_targets: Sequence[lambda_.IFunction | sfn.IStateMachine | str] = (),
        removal_policy: RemovalPolicy = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
        log_retention: logs.RetentionDays = logs.RetentionDays.ONE_MONTH,
        encryption_key: kms.IKey | None = None,
        vpc: ec2.IVpc | None = None,
        vpc_subnets: ec2.SubnetSelection | None = None,
        security_groups: Sequence[ec2.ISecurityGroup] = (),
        memory_size: int = MEMORY_MB,
        architecture: lambda_.Architecture = _ARM,
        snap_start: bool = False,
        clean_up_concurrency: int | None = None,
        log_level: sfn.LogLevel = sfn.LogLevel.ALL,
        tracing: bool = True,
        dashboard: bool = False,
        dashboard_live: bool = False,
        alarms: bool = False,
        alarm_thresholds: AlarmThresholds = _THRESHOLDS,
        alarm_actions: Sequence[cloudwatch.IAlarmAction] = (),
        alarm_topic: sns.ITopic | None = None,
    ) -> None:
        super().__init__(scope, id)
        self.service_name = service_name_of(self)
        self._settings = LockSettings.of(
            lease=lease,
            row_lease=row_lease,
            poll=poll,
            default_record_wait=default_record_wait,
            permits=permits,
            hand_over=hand_over,
            heartbeat=heartbeat,
            work_timeout=work_timeout,
            polls_an_execution=polls_an_execution,
            beats_an_execution=beats_an_execution,
        )
        self._environment = Environment(Stack.of(self))
        self._grantees = grants.Grantees(self, self._environment)
        allowed = parse_targets("targets", targets, self._environment)
        retired = parse_targets("retired_targets", retired_targets, self._environment)
        check_all(allowed, retired)
        for position, given in enumerate(targets):
            if not isinstance(given, str) and isinstance(given.node.scope, SerializeMachine):
                raise ValueError(
                    f"targets[{position}] is {given.node.path}, the state machine of a TicketLock, which refuses the "
                    "field lock that the input of a target has; allowed: work under both locks by fragments, one in "
                    "the other: serialize(..., protected=the_other_lock.serialize(...))"
                )
        for target in allowed:
            if target.is_qualified:
                told = f"target {target.shown} is a version or an alias: executions name it by exactly that ARN"
                Annotations.of(self).add_info_v2("ticketlock:qualifiedTarget", told)
        hosting = Hosting(
            memory_mb=memory_size,
            architecture=architecture,
            network=Network.of(self, vpc=vpc, vpc_subnets=vpc_subnets, security_groups=security_groups),
            log_retention=log_retention,
            removal_policy=removal_policy,
            encryption_key=encryption_key,
            tracing=tracing,
            log_level=log_level,
        )
        self.table: dynamodb.ITable = new_or_given(
            self,
            "Table",
            LOCKS,
            table,
            environment=self._environment,
            removal_policy=removal_policy,
            encryption_key=encryption_key,
        )
        if encryption_key is not None:
            let_logs_use(encryption_key, self)
        functions = self._add_functions(hosting, snap_start=snap_start, clean_up_concurrency=clean_up_concurrency)
        self._add_machines(functions, hosting, allowed, retired)
        monitoring = LockMonitoring(
            construct=self,
            metrics=self,
            functions=functions,
            machines=self._machines,
            table=self.table,
            dead_letter_queue=self.dead_letter_queue,
            longest_parking=Duration.seconds(self._settings.lease_s / 2),
            hosting=hosting,
            has_dashboard=dashboard,
            has_live=dashboard_live,
            has_alarms=alarms,
            thresholds=alarm_thresholds,
            alarm_actions=alarm_actions,
            alarm_topic=alarm_topic,
        )
        self.list_command: str = monitoring.list_command
        self.alarms: Mapping[str, cloudwatch.Alarm] = monitoring.alarms
        self.dashboard: cloudwatch.Dashboard | None = monitoring.dashboard
        self.live_report: lambda_.Function | None = monitoring.live_report
        if self.live_report is not None:
            self.grant_read(self.live_report)

    def _add_functions(self, hosting: Hosting, *, snap_start: bool, clean_up_concurrency: int | None) -> LockFunctions:
        functions = LockFunctions(
            self,
            "Functions",
            table=self.table,
            settings=self._settings,
            service_name=self.service_name,
            hosting=hosting,
            snap_start=snap_start,
            clean_up_concurrency=clean_up_concurrency,
        )
        self.take_ticket: lambda_.Function = functions.take_ticket
        self.check_position: lambda_.Function = functions.check_position
        self.heartbeat: lambda_.Function = functions.heartbeat
        self.release: lambda_.Function = functions.release
        self.wait_for_wake_up: lambda_.Function = functions.wait_for_wake_up
        self.clean_up: lambda_.Function = functions.clean_up
        self._invoked = [arn for arns in functions.called_by_machines.values() for arn in arns]
        self._roles = StepRoles(functions)
        return functions

    def _add_machines(
        self, functions: LockFunctions, hosting: Hosting, allowed: Sequence[Target], retired: Sequence[Target]
    ) -> None:
        """Add the lock's own state machines, and what cleans up after their executions, and after those of others."""
        machine = SerializeMachine(
            self,
            "Serialize",
            table=self.table,
            functions=functions,
            settings=self._settings,
            targets=allowed,
            retired_targets=retired,
            hosting=hosting,
        )
        self.state_machine: sfn.StateMachine = machine.state_machine
        self._substitutions = machine.substitutions
        self._continues_arn = machine.continues.state_machine_arn
        self._machines: Sequence[sfn.StateMachine] = [machine.state_machine, machine.continues]
        own = len(self._machines)
        self._fragments: Sequence[Serialized] = ()
        self._durable: Sequence[lambda_.Function] = ()
        self.node.add_validation(
            AllAttached(self, functions.arns["TakeTicket"], lambda: self._fragments, lambda: self._machines[own:])
        )
        key, place = hosting.encryption_key, Construct(self, "CleanUp")
        self.dead_letter_queue: sqs.IQueue = new_dead_letter_queue(place, "DeadLetters", hosting)
        # It is best effort, like EventBridge's delivery; the lease is the guarantee.
        self._ended = EndedExecutions(
            place, self.clean_up, self.dead_letter_queue, key, rule_id="CleanUpRule", what="clean-up"
        )
        # With a key that is the table's, too, they may already.
        self._key_of_machines = None if self.table.encryption_key is key else key
        self._let_steps(machine.state_machine, machine.continues, [*allowed, *retired])
        self._ended.watch(place, machine.state_machine)
        self.clean_up.add_environment("STATE_MACHINE_ARN", machine.state_machine.state_machine_arn)
        self.clean_up.add_environment("LEASE_SECONDS", str(self._settings.lease_s))

    def serialize(
        self,
        scope: Construct,
        id: str,
        protected: Protected,
        *,
        entity: str,
        namespace: str = DEFAULT_NAMESPACE,
        record_wait: RecordWaitOrPath | None = None,
        permits: int | str | None = None,
        shared: bool | str = False,
        lock_path: str | None = None,
        query_language: sfn.QueryLanguage = sfn.QueryLanguage.JSON_PATH,
    ) -> Serialized:
        """States of your own workflow that run one at a time for each entity: a fragment to chain.

        The protected states get the payload unchanged, and their output is the fragment's output. Each entry is a
        separate owner: in a loop, in the iterations of a Map, in the branches of a Parallel. A failure of the protected
        states fails the fragment with the same error and cause, after the release. ``RecordWaitExceeded``,
        ``LockLost``, ``PermitsMismatch`` and ``InvalidLockRequest`` fail it under these names. To catch them, wrap it
        with ``fragment.to_single_state()``.

        Call ``attach`` with the state machine; otherwise the app does not synthesise.

        Args:
            scope: the fragment's scope.
            id: names its states; at most 50 characters, unique in the state machine.
            protected: a chain of states, a function, or a Standard state machine; with ``heartbeat=False`` not a chain,
                since nothing limits its time.
            entity: a text, a path into the payload (``$.order.id``), or an expression in JSONata
                (``{% $states.input.order.id %}``).
            namespace: likewise.
            record_wait: seconds, a Duration, ``"Infinity"``, a path or an expression; by default the construct's
                ``default_record_wait``.
            permits: how many may hold the lock at once: 1 to 100, a path or an expression; by default the construct's
                ``permits``.
            shared: whether to hold the lock together with others that share it: true or false, a path or an
                expression. If true, ``permits`` must be 1.
            lock_path: where in the payload the protected states find ``{entity, namespace, owner, fencingToken}``, for
                example ``$.lock``; by default they do not get it.
            query_language: the language of the fragment's own states. A state machine in JSONata takes only JSONata,
                one in JSONPath takes both; of a fragment in JSONata no value is a path.

        Raises:
            ValueError: one of them is not usable; the message says which, and what is allowed.
        """
        fragment = Serialized(
            scope,
            id,
            protected=protected,
            entity=entity,
            namespace=namespace,
            record_wait=record_wait,
            permits=permits,
            shared=shared,
            lock_path=lock_path,
            query_language=query_language,
            settings=self._settings,
            substitutions=self._substitutions,
        )
        self._fragments = [*self._fragments, fragment]
        work = work_of(protected)
        if work is not None:
            self._environment.check("protected", work.shown, work.environment)
        if work is not None and work.machine_arn:
            place, what = grants.beside(self, Stack.of(fragment)), f"protected is {work.shown}"
            self._roles.let_close(place, work.executions_arn(Stack.of(self)), what)
            if work.is_qualified:
                told = (
                    f"{what}, a version or an alias, for whose ARN the CDK's task has its grants; Step Functions asks "
                    "for grants on the state machine's own: let the role of the machine with the fragment start it "
                    "(states:StartExecution), and describe and stop its executions"
                )
                Annotations.of(fragment).add_warning_v2("ticketlock:qualifiedWork", told)
        return fragment

    def attach(self, machine: sfn.StateMachine) -> None:
        """Let your state machine with fragments of this lock use it, and clean up after its executions.

        Attaching it again changes nothing.

        Raises:
            ValueError: it is an Express one, imported, or in another Region or account, or the app cannot change its
                role, or there is no room for one more.
        """
        check_construct("machine", machine, "state_machine_arn", "a StateMachine of this app, as a construct")
        if is_express(machine):
            raise ValueError(f"machine is {machine.node.path}, {EXPRESS}")
        if not isinstance(machine.node.default_child, sfn.CfnStateMachine):
            raise ValueError(f"machine is {machine.node.path}, which is imported; allowed: one of this app")
        self._environment.check("machine", machine.node.path, environment_of(machine))
        if machine in self._machines:
            return
        grants.check_takes_policies(
            f"machine is {machine.node.path}, with the role {machine.role.node.path}", machine.role
        )
        grants.let_invoke(machine, self._invoked)
        grants.let_nest(machine, [(self._continues_arn, executions_arn(Stack.of(self), self._continues_arn))])
        grants.let_write_sessions(machine, self.table)
        # It awaits executions that are encrypted with the key.
        if self._key_of_machines is not None:
            self._key_of_machines.grant_decrypt(machine)
        place, what = grants.beside(self, Stack.of(machine)), f"machine is {machine.node.path}"
        self._roles.let_answer(place, machine.state_machine_arn, what)
        key_arn = key_arn_of(machine)
        if key_arn is not None:
            self._roles.let_use_key(place, key_arn, what)
        self._roles.let_describe(place, executions_arn(Stack.of(self), machine.state_machine_arn), what)
        self._ended.watch(place, machine)
        self._machines = [*self._machines, machine]
        self._let_durable_wake()

    def attach_durable(self, function: lambda_.Function) -> None:
        """Let your durable function hold locks with ``ticketlock.durable``, and clean up after its executions.

        Every release of a workflow and of the clean-up then wakes its executions; one of another attached durable
        function does if either is in the lock's stack or both are in one: other stacks would name each other in a
        circle. Where none may wake it, a waiting execution goes on when its park ends. Attaching it again changes
        nothing.

        Raises:
            ValueError: it is not durable, imported, or in another Region or account, or there is no room for one more.
        """
        check_construct("function", function, "function_arn", "a durable function of this app, as a construct")
        cfn = function.node.default_child
        if not isinstance(cfn, lambda_.CfnFunction) or cfn.durable_config is None:
            raise ValueError(
                f"function is {function.node.path}, which is not durable; allowed: a function of this app with "
                "durable_config, which Lambda takes only when the function is created"
            )
        self._environment.check("function", function.node.path, environment_of(function))
        if function in self._durable:
            return
        self._durable = [*self._durable, function]
        place, what = grants.beside(self, Stack.of(function)), f"function is {function.node.path}"
        self._roles.let_wake(place, function.function_arn, what)
        key_arn = key_arn_of_durable(function)
        if key_arn is not None:
            self._roles.let_use_key(place, key_arn, what)
        self._let_durable_wake()
        self._ended.watch_durable(place, function)

    def _let_durable_wake(self) -> None:
        """Grant each durable function what it needs of all that are attached by now."""
        own = Stack.of(self)
        near = [machine for machine in self._machines if Stack.of(machine) is own]
        for each in self._durable:
            # What is in the lock's stack names nothing of other stacks, which name the lock's.
            functions = [one for one in self._durable if Stack.of(one) is own or Stack.of(one) is Stack.of(each)]
            grantee = self._grantees.of(each, "Durable")
            grants.grant_durable(grantee, table=self.table, machines=near, functions=functions)

    def _let_steps(self, machine: sfn.StateMachine, continues: sfn.StateMachine, targets: Sequence[Target]) -> None:
        """Grant the functions their permissions on the lock's own state machines, and on its targets."""
        place, stack = Construct(self, "Steps"), Stack.of(self)
        for own in (machine, continues):
            self._roles.let_answer(place, own.state_machine_arn, "TicketLock")
        if self._key_of_machines is not None:
            self._roles.let_use_key(place, self._key_of_machines.key_arn, "TicketLock")
        self._roles.let_describe(place, executions_arn(stack, machine.state_machine_arn), "TicketLock")
        self._roles.let_clean_up_close(place, executions_arn(stack, continues.state_machine_arn), "TicketLock")
        for target in targets:
            if target.machine_arn:
                self._roles.let_close(place, target.executions_arn(stack), f"targets has {target.shown}")

    def grant_start_execution(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a principal start executions."""
        to = self._grantees.of(grantee, "StartExecution").grantables
        return grants.to_each(to, self.state_machine.grant_start_execution)

    def grant_use(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a Python client take, renew and release locks of this table, and wake the next workflow in line.

        It covers the attached machines of this stack, and the keys that they are encrypted with: naming those of other
        stacks would make the stacks circular.
        """
        near = [machine for machine in self._machines if Stack.of(machine) is Stack.of(self)]
        return grants.grant_use(self._grantees.of(grantee, "Use"), table=self.table, machines=near)

    def grant_fence(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let a protected task commit under the lock that its workflow holds, by ``Fence(event["lock"], table_name)``.

        It can neither read nor take, renew or release a lock.
        """
        return grants.grant_fence(self._grantees.of(grantee, "Fence"), table=self.table)

    def grant_read(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let an operator read locks and queues, and list them, but no session, whose task tokens are secrets.

        Listing is a Scan, which is allowed with ``Select=SPECIFIC_ATTRIBUTES`` and a projection of named attributes.
        """
        return grants.grant_read(self._grantees.of(grantee, "Read"), table=self.table)
