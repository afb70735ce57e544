"""Pages of a plan on a cluster: those of one machine, from a real API server.

The operator's loop plans and trains there (`tests.lab.loops`). What its store holds is
put into a state directory as well, so that both places have the same plan to show.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from plimsoll_cli.__main__ import main
from plimsoll_cli.errors import ExitCode
from plimsoll_cli.state.state_dir import open_state_dir
from plimsoll_operator.kube.api import CONFIG_MAPS, Api, Object, open_api
from plimsoll_operator.names import TASK_LABEL
from plimsoll_operator.objects.plans import PlanObject
from plimsoll_operator.objects.record_maps import attempts_in, plan_in
from plimsoll_operator.store.questions import Occasion
from plimsoll_operator.store.store import Store
from plimsoll_planner.exit_codes import ExitCode as RankExit
from tests.lab import event_loops
from tests.lab.cluster import Cluster
from tests.lab.kubelets import observed_by
from tests.lab.loops import PLAN, Home, at_home, running
from tests.support.builders import DIGEST, an_offer
from tests.support.chart import NAMESPACE, one, rendered

pytestmark = pytest.mark.control_plane

ROOT = Path(__file__).parents[2]
NOT_KNOWN = "not known here: "
LOGS = "the loss of each step and the newest checkpoint: ranks write them to their logs"


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A namespace with a plan that has trained, and a home with the same."""

    server: Cluster
    namespace: str
    home: Path
    """State directory."""
    uids: tuple[str, str]
    """Of the plan: on the cluster, at home."""

    @property
    def place(self) -> tuple[str, ...]:
        """Options that name the namespace."""
        kubeconfig = str(self.server.kubeconfig)
        return ("--cluster", "--kubeconfig", kubeconfig, "-n", self.namespace)


@pytest.fixture(scope="module")
def trained(
    server: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Trained]:
    """A plan that ran out of memory once, was planned anew, and has trained."""
    folder = tmp_path_factory.mktemp("pages")
    root = folder / "home"

    async def work(namespace: str) -> tuple[str, str]:
        async with (
            open_api(str(server.kubeconfig)) as api,
            at_home(api, namespace, folder) as home,
        ):
            home.kubelets.endings[PLAN, "train"] = [RankExit.DEVICE_OUT_OF_MEMORY]
            saves = {"claimName": "ckpt", "path": "runs", "exportWeights": True}
            await home.create(checkpoint=saves)
            claim: Object = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "ckpt"},
                "spec": {
                    "accessModes": ["ReadWriteMany"],
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }
            server.apply(claim, namespace=namespace)
            async with running(home) as run:
                await run.over()
                await run.settled()
            plan = await home.plan()
            return plan.owner.uid, await copied(home, plan, root)

    with server.fresh_namespace() as namespace:
        uids = event_loops.run(work(namespace))
        yield Trained(server=server, namespace=namespace, home=root, uids=uids)


async def copied(home: Home, plan: PlanObject, root: Path) -> str:
    """Put a plan into a state directory, from the operator's store; return its uid."""
    store = Store(home.database).within(home.namespace)
    uid, spec = plan.owner.uid, plan.spec
    assert spec is not None
    maps = await home.api.list(CONFIG_MAPS, home.namespace)
    async with open_state_dir(root) as state:
        mine = state.store
        made = await mine.plans.create(
            PLAN, spec, (an_offer(),), "/code", plan.created_s
        )
        await mine.plans.save_status(made.uid, plan.status)
        for number, asked in enumerate(reversed(await store.questions.of(uid))):
            occasion = Occasion(
                plan_uid=made.uid, generation=1, round=number, profile_digest=DIGEST
            )
            answer = await store.answers.find(asked.digest)
            assert answer is not None
            await mine.questions.put(occasion, asked.problem)
            await mine.answers.save(asked.digest, answer)
        for attempt in attempts_in(maps):
            name = f"{PLAN}-plan-{attempt.number}"
            [of_record] = [one for one in maps if one["metadata"]["name"] == name]
            by = plan_in(of_record)
            await mine.attempts.record(
                *(made.uid, attempt.number, by),
                problem_digest=attempt.problem_digest,
                now_s=attempt.recorded_s,
            )
            await mine.attempts.end(made.uid, attempt)
            for seen in await store.observations.of(uid, attempt.number):
                peak = by.stage_of(seen.rank).peak()
                assert peak is not None
                await mine.observations.save(made.uid, seen, peak, 1, 0.0)
        return made.uid


Read = pytest.CaptureFixture[str]


def output(capsys: Read, *words: str, code: ExitCode = ExitCode.DONE) -> str:
    """Output of a command, or the line on its error."""
    assert main(words) == code
    said = capsys.readouterr()
    return said.err if code is not ExitCode.DONE else said.out


def both(trained: Trained, capsys: Read, *words: str) -> tuple[str, str]:
    """Output of a command on the cluster and at home, uids alike."""
    there = output(capsys, *words, *trained.place)
    here = output(capsys, *words, "--home", str(trained.home))
    uid, uid_at_home = trained.uids
    return there.replace(uid, "UID"), here.replace(uid_at_home, "UID").replace(
        uid, "UID"
    )


def test_describe_is_the_same_page(trained: Trained, capsys: Read) -> None:
    """But for the place of the code, and what ranks tell their logs alone."""
    there, here = both(trained, capsys, "describe", PLAN)
    lines, expected = there.splitlines(), here.splitlines()
    code = "code in the image torch.example/torch: my_model:workload"
    assert (lines[1][:24], expected[1][:13]) == (code[:24], "code in /code")
    assert lines[2] == expected[2] == "checkpoints in claim ckpt, folder runs/UID"
    others = [line for line in lines[2:] if line]
    place = next(n for n, line in enumerate(others) if line.startswith(NOT_KNOWN))
    assert others[place].startswith(NOT_KNOWN + LOGS)
    assert others[:place] == [line for line in expected[2:] if line]
    assert "trained weights: claim ckpt, folder runs/UID/weights" in others
    assert "ATTEMPT" in there
    assert "rank 0" in there


@pytest.mark.parametrize("more", [(), ("--gpus", "1"), ("-o", "json")], ids=str)
def test_explain_is_the_same_page(
    trained: Trained, capsys: Read, more: tuple[str, ...]
) -> None:
    """The whole certificate is on the cluster, also each of its combinations."""
    there, here = both(trained, capsys, "explain", PLAN, *more)
    assert there == here
    assert there.count("\n") > 3


def test_get_is_the_same_table(trained: Trained, capsys: Read) -> None:
    """Over all namespaces with one column more; ages grow between the two."""
    there, here = both(trained, capsys, "get")
    age = 2  # words of it, at the end
    assert there.split()[:-age] == here.split()[:-age]
    place = ("--cluster", "--kubeconfig", str(trained.server.kubeconfig), "-A")
    rows = output(capsys, "get", *place).splitlines()
    assert rows[0].split()[:2] == ["NAMESPACE", "NAME"]
    assert any(row.split()[:2] == [trained.namespace, PLAN] for row in rows)
    [found] = json.loads(output(capsys, "get", "-o", "json", *trained.place))
    [expected] = json.loads(
        output(capsys, "get", "-o", "json", "--home", str(trained.home))
    )
    assert found["cluster"] == expected["home"] == {"state": "Trained", "isRun": False}
    assert found["status"] == expected["status"]
    assert found["metadata"]["namespace"] == trained.namespace


def test_the_report_is_the_same_file(
    trained: Trained, capsys: Read, tmp_path: Path
) -> None:
    """With charts of memory and schedule, and the frontier if that is asked for."""
    pages = []
    for place in (trained.place, ("--home", str(trained.home))):
        page = tmp_path / "page.html"
        words = ("report", PLAN, "--frontier", "--html", str(page), *place)
        output(capsys, *words)
        text = page.read_text()
        for uid in trained.uids:
            text = text.replace(uid, "UID")
        pages.append(re.sub(r"\s*<div><dt>Not known here</dt>.*?</div>", "", text))
    assert pages[0] == pages[1]
    assert "Memory against speed" in pages[0]
    assert "claim ckpt, folder runs/UID/weights" in pages[0]


def test_a_name_that_no_plan_has_is_compared_with_all(
    trained: Trained, capsys: Read
) -> None:
    """In that namespace; the line names the namespace, the context and the file."""
    said = output(capsys, "describe", "tinny", *trained.place, code=ExitCode.FAILED)
    place = f"in namespace {trained.namespace} of the cluster of context "
    assert f"no TrainingPlan tinny {place}" in said
    assert f"in {trained.server.kubeconfig}; did you mean {PLAN}?" in said
    elsewhere = (*trained.place[:-1], "default")
    said = output(capsys, "explain", PLAN, *elsewhere, code=ExitCode.FAILED)
    assert f"no TrainingPlan {PLAN} in namespace default of" in said
    said = output(capsys, "get", *elsewhere)
    assert said.startswith("no TrainingPlans in namespace default of the cluster of")


def test_parts_that_somebody_deleted_are_named(
    trained: Trained, capsys: Read, tmp_path: Path
) -> None:
    """The rest of the page stands; explain has nothing to show, and says why."""
    server, namespace = trained.server, trained.namespace
    before = server.get("configmaps", namespace=namespace)["items"]
    kind = "plimsoll.dev/child"
    lost = [
        one for one in before if one["metadata"].get("labels", {}).get(kind) == "answer"
    ]
    selected = ("-l", f"{kind}=answer", "-n", namespace)
    server.kubectl("delete", "configmaps", *selected)
    try:
        page = output(capsys, "describe", PLAN, *trained.place)
        assert f"{NOT_KNOWN}its question and answer: no ConfigMap of the" in page
        assert "planned by an operator of an" in page
        assert "ATTEMPT" in page
        said = output(capsys, "explain", PLAN, *trained.place, code=ExitCode.FAILED)
        assert f"no answer of plan {PLAN}, which is Trained: its question and" in said
        words = ("report", PLAN, "--html", str(tmp_path / "page.html"))
        output(capsys, *words, *trained.place)
    finally:
        for found in lost:
            for field in ("resourceVersion", "uid", "creationTimestamp"):
                del found["metadata"][field]
            server.apply(found, namespace=namespace)


def test_a_plan_that_nobody_has_looked_at_says_so(
    server: Cluster, namespace: str, capsys: Read
) -> None:
    """No operator serves this namespace."""
    made = {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "TrainingPlan",
        "metadata": {"name": "new"},
        "spec": {
            "workload": {"entrypoint": "a:b"},
            "training": {"globalBatchSize": 4, "steps": 3},
        },
    }
    server.apply(made, namespace=namespace)
    place = ("--cluster", "--kubeconfig", str(server.kubeconfig), "-n", namespace)
    page = output(capsys, "describe", "new", *place)
    assert page.startswith("new: New  (uid ")
    assert "code in an image that spec.template does not name: a:b" in page
    assert f"{NOT_KNOWN}where it stands: the operator has not looked at it yet" in page
    said = output(capsys, "explain", "new", *place, code=ExitCode.FAILED)
    assert "no answer of plan new, which is New: where it stands: the operator" in said


def test_ranks_that_run_are_on_the_page(
    server: Cluster, namespace: str, tmp_path: Path, capsys: Read
) -> None:
    """Their reports are published while they train, and removed with the end.

    Question and answer are published again if an earlier operator has published none.
    """
    place = ("--cluster", "--kubeconfig", str(server.kubeconfig), "-n", namespace)

    async def work() -> None:
        async with (
            open_api(str(server.kubeconfig)) as api,
            at_home(api, namespace, tmp_path) as home,
        ):
            home.kubelets.endings[PLAN, "train"] = ["never"]
            plan = await home.create()
            async with running(home) as run:
                await run.launched()
                await report_all(home, plan)
                run.process.queue.add(run.key)
                await run.until("seen", lambda one: one.status.observed is not None)
                page = await asyncio.to_thread(describe)
                assert "worst error of the predicted peaks" in page
                assert "rank 0" in page
                assert "reports" in await kinds(api, namespace)
                answers = ("-l", "plimsoll.dev/child in (answer,question)")
                server.kubectl("delete", "configmaps", "-n", namespace, *answers)
                run.process.queue.add(run.key)
                await run.settled()
                assert await asyncio.to_thread(describe) == page
                await home.edit(suspend=True)
                await run.until("stopped", is_stopped)
                await run.settled()
                assert "reports" not in await kinds(api, namespace)
                page = await asyncio.to_thread(describe)
                assert page.startswith(f"{PLAN}: Suspended  (uid ")

    def describe() -> str:
        return output(capsys, "describe", PLAN, *place)

    event_loops.run(work())


def is_stopped(plan: PlanObject) -> bool:
    """Whether the ranks have saved and left."""
    return any(one.reason == "Suspended" for one in plan.status.conditions)


async def kinds(api: Api, namespace: str) -> set[str]:
    """Purposes of the ConfigMaps of a namespace."""
    found = await api.list(CONFIG_MAPS, namespace, metadata_only=True)
    return {str((one["metadata"].get("labels") or {}).get(TASK_LABEL)) for one in found}


async def report_all(home: Home, plan: PlanObject) -> None:
    """Report the ranks of the first attempt while they train."""
    store = Store(home.database).within(home.namespace)
    found = await home.api.get(CONFIG_MAPS, home.namespace, f"{PLAN}-plan-1")
    assert found is not None
    by = plan_in(found)
    for rank in range(by.num_gpus):
        peak = by.stage_of(rank).peak()
        assert peak is not None
        seen = observed_by(by, rank, attempt=1)
        await store.observations.save(plan.owner.uid, seen, peak, by.micro_batch, 1.0)


def an_account(server: Cluster, namespace: str, folder: Path, role: str) -> Path:
    """Make an account with a cluster role in a namespace; return its kubeconfig."""
    account = f"reader-{role.rpartition('-')[2] or 'none'}"
    server.kubectl("create", "serviceaccount", account, "-n", namespace)
    if role:
        server.kubectl(
            *("create", "rolebinding", account, "-n", namespace),
            f"--clusterrole={role}",
            f"--serviceaccount={namespace}:{account}",
        )
    token = server.kubectl("create", "token", account, "-n", namespace).strip()
    login = yaml.safe_load(server.kubeconfig.read_text())
    login["users"][0]["user"] = {"token": token}
    login["contexts"][0]["context"]["namespace"] = namespace
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(login))
    return path


@pytest.fixture
def roles(server: Cluster) -> Iterator[Callable[[Object], str]]:
    """Maker of roles of the cluster, which go with the test; returns their names."""
    made: list[str] = []

    def make(role: Object) -> str:
        server.apply(role)
        made.append(role["metadata"]["name"])
        return made[-1]

    yield make
    server.kubectl("delete", "clusterroles", *made)


def test_the_role_of_the_chart_is_enough(
    trained: Trained,
    roles: Callable[[Object], str],
    capsys: Read,
    tmp_path: Path,
) -> None:
    """Bound alone in one namespace, which its context names."""
    role = one(rendered(), "ClusterRole", f"{NAMESPACE}-plimsoll-viewer")
    login = an_account(trained.server, trained.namespace, tmp_path, roles(role))
    place = ("--cluster", "--kubeconfig", str(login))
    there = output(capsys, "describe", PLAN, *place)
    assert there == output(capsys, "describe", PLAN, *trained.place)
    said = output(capsys, "get", "-A", *place, code=ExitCode.FAILED)
    assert "lets us read no plans: GET /apis/plimsoll.dev/v1alpha1/trainingpl" in said


def test_who_may_not_read_is_told_what_to_ask_for(
    trained: Trained,
    roles: Callable[[Object], str],
    capsys: Read,
    tmp_path: Path,
) -> None:
    """No plan at all; or plans, and the rest of their pages is missing."""
    login = an_account(trained.server, trained.namespace, tmp_path, "")
    place = ("--cluster", "--kubeconfig", str(login))
    for words in (["get"], ["describe", PLAN]):
        said = output(capsys, *words, *place, code=ExitCode.FAILED)
        assert "lets us read no plans: " in said
        assert "ask for the ClusterRole `view`" in said
    plans_only: Object = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "sees-plans"},
        "rules": [
            {
                "apiGroups": ["plimsoll.dev"],
                "resources": ["trainingplans"],
                "verbs": ["get", "list"],
            }
        ],
    }
    login = an_account(trained.server, trained.namespace, tmp_path, roles(plans_only))
    page = output(capsys, "describe", PLAN, "--cluster", "--kubeconfig", str(login))
    assert page.startswith(f"{PLAN}: Trained")
    assert (
        f"{NOT_KNOWN}everything but the status: it lies in ConfigMaps, and we" in page
    )


def test_a_server_without_the_definition_is_told_from_one_that_is_away(
    server: Cluster, capsys: Read, tmp_path: Path
) -> None:
    """A path below the server's answers as an API server without the definition."""
    login = yaml.safe_load(server.kubeconfig.read_text())
    address = login["clusters"][0]["cluster"]["server"]
    path = tmp_path / "kubeconfig"
    for other, expected in (
        (f"{address}/none", "has no TrainingPlans: Plimsoll is not installed there"),
        ("https://127.0.0.1:1", "the API server does not answer: Cannot connect to"),
    ):
        login["clusters"][0]["cluster"]["server"] = other
        path.write_text(yaml.safe_dump(login))
        words = ("get", "--cluster", "--kubeconfig", str(path))
        assert expected in output(capsys, *words, code=ExitCode.FAILED)


def test_kubectl_runs_the_plugin(trained: Trained, tmp_path: Path) -> None:
    """By its name on the PATH, with the cluster that kubectl means."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["kubectl-plimsoll"].partition(":")
    plugin = tmp_path / "kubectl-plimsoll"
    plugin.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path[:0] = {sys.path!r}\n"
        f"from {module} import {function}\nsys.exit({function}())\n"
    )
    plugin.chmod(0o755)
    path = f"{tmp_path}:{trained.server.environment['PATH']}"
    done = subprocess.run(
        ["kubectl", "plimsoll", "get", "-n", trained.namespace],
        env={**trained.server.environment, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()
    assert [row.split()[0] for row in rows] == ["NAME", PLAN]
