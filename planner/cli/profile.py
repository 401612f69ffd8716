"""``planner profile``: measure a model's layers, show, scale and calibrate profiles."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from planner.cli.options import ClusterOption, ForceOption, JsonOption, OutputOption, WorkloadOption

__all__ = ["app"]

app = typer.Typer(help="Measure what a model's layers cost.", no_args_is_help=True)

_ProfileArgument = Annotated[Path, typer.Argument(metavar="PROFILE", help="A profile/1 file, - for stdin.")]


@app.command()
def run(
    factory: Annotated[
        str, typer.Argument(metavar="MODULE:FACTORY", help="A function that makes the model; also FILE.py:FACTORY.")
    ],
    micro_batch: Annotated[str, typer.Option("--micro-batch", metavar="1,2,4", help="Samples of a micro-batch.")],
    sequence: Annotated[str, typer.Option("--sequence", metavar="64,128", help="Tokens of a sample.")],
    ranks: Annotated[int, typer.Option(min=1, max=1024, help="Ranks that measure at the same time.")] = 2,
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Compute threads of a rank.")] = 1,
    device: Annotated[Literal["cpu", "cuda"], typer.Option(help="Where to measure.")] = "cpu",
    kind: Annotated[str | None, typer.Option(help="Device kind. [default: the device's own name]")] = None,
    usable: Annotated[str | None, typer.Option(metavar="SIZE", help="Memory of a rank, for example 16GB.")] = None,
    precision: Annotated[Literal["fp32", "bf16", "fp16"], typer.Option()] = "fp32",
    optimizer: Annotated[Literal["adamw", "adam", "sgd", "sgd_momentum"], typer.Option()] = "adamw",
    cut: Annotated[
        str | None, typer.Option(metavar="NAME,NAME", help="Modules to cut at. [default: the automatic cut]")
    ] = None,
    loss: Annotated[
        str | None, typer.Option(metavar="MODULE:LOSS", help="loss(output, labels) -> sum. [default: cross entropy]")
    ] = None,
    time_limit: Annotated[str, typer.Option("--time-limit", help="Of the measuring, for example 60s.")] = "60s",
    seed: Annotated[int, typer.Option(min=0)] = 0,
    output: OutputOption = None,
    force: ForceOption = False,
    json_output: JsonOption = False,
) -> None:
    """Measure every layer for every shape, on several ranks at once.

    Ctrl-C stops and stores nothing.
    """
    from planner.cli.capture_bar import CaptureBar
    from planner.cli.extras import require_extra
    from planner.cli.files import make_contract
    from planner.cli.output import Destination, check_destination, emit_document
    from planner.cli.parsing import duration_ns, names, numbers, size_bytes
    from planner.cli.point_warnings import warn_of_points
    from planner.cli.problem_tables import profile_tables
    from planner.cli.talk import warn

    destination = Destination(output, force)
    check_destination(destination)
    sizes, lengths = numbers(micro_batch, "--micro-batch"), numbers(sequence, "--sequence")
    usable_bytes, limit_ns = size_bytes(usable, "--usable"), duration_ns(time_limit, "--time-limit")
    require_extra("torch", "torch")
    from profiles.capture import CaptureOptions, capture
    from profiles.protocol import Grid
    from profiles.source import ModelSource

    source = make_contract(ModelSource, factory=factory, loss=loss, cut=names(cut))
    options = CaptureOptions(
        num_ranks=ranks,
        threads=threads,
        precision=precision,
        optimizer=optimizer,
        time_limit_ns=limit_ns,
        device=device,
        device_kind=kind,
        usable_bytes=usable_bytes,
        seed=seed,
        command=shlex.join(["planner", *sys.argv[1:]])[:4096],
    )
    grid = make_contract(Grid, micro_batch_sizes=sizes, sequence_lengths=lengths)
    not_finite: list[str] = []
    with CaptureBar() as bar:
        profile = capture(source, grid, options, report=bar.show, warn=not_finite.append)
    for text in not_finite:
        warn("not_finite_values", text)
    warn_of_points(profile)
    emit_document(profile, destination, tables=profile_tables(profile), json_output=json_output)


@app.command()
def show(profile_file: _ProfileArgument, json_output: JsonOption = False) -> None:
    """Show a profile: where it comes from and what the layers cost."""
    from planner.cli.files import read_profile
    from planner.cli.output import emit_json, show_tables
    from planner.cli.problem_tables import profile_tables

    profile = read_profile(profile_file)
    if json_output:
        emit_json({"digest": profile.digest} | profile.model_dump(mode="json"))
    else:
        show_tables(*profile_tables(profile))


@app.command()
def scale(
    profile_file: _ProfileArgument,
    kind: Annotated[str, typer.Option(help="The other device kind.")],
    factor: Annotated[float, typer.Option(help="How many times as long everything takes there.")],
    usable: Annotated[str | None, typer.Option(metavar="SIZE", help="Memory of a rank there.")] = None,
    output: OutputOption = None,
    force: ForceOption = False,
    json_output: JsonOption = False,
) -> None:
    """Guess the profile of another device kind: times are multiplied, memory stays."""
    from planner.cli.files import read_profile
    from planner.cli.output import Destination, check_destination, emit_document
    from planner.cli.parsing import size_bytes
    from planner.cli.problem_tables import profile_tables
    from profiles.scale import scale_profile

    destination = Destination(output, force)
    check_destination(destination, inputs=[profile_file])
    scaled = scale_profile(read_profile(profile_file), kind, factor, size_bytes(usable, "--usable"))
    emit_document(scaled, destination, tables=profile_tables(scaled), json_output=json_output)


@app.command()
def calibrate(
    profile_file: _ProfileArgument,
    plan_file: Annotated[Path, typer.Option("--plan", metavar="FILE", help="The plan that ran.")],
    run_file: Annotated[Path, typer.Option("--run", metavar="FILE", help="What the run measured, run/1.")],
    cluster: ClusterOption,
    workload: WorkloadOption,
    others: Annotated[
        list[Path] | None, typer.Option("--other", metavar="FILE", help="Profiles of the cluster's other kinds.")
    ] = None,
    skip: Annotated[int, typer.Option(min=0, help="First steps to leave out: they warm up.")] = 1,
    output: OutputOption = None,
    force: ForceOption = False,
    json_output: JsonOption = False,
) -> None:
    """Fit the profile's overhead to measured steps, so that the next prediction rests on a real run."""
    from planner.cli.calibrating import calibrated_profile
    from planner.cli.output import Destination, check_destination, emit_document
    from planner.cli.problem_files import read_problem
    from planner.cli.problem_tables import profile_tables

    destination = Destination(output, force)
    inputs = [profile_file, plan_file, run_file, cluster, workload, *(others or [])]
    check_destination(destination, inputs=inputs)
    problem = read_problem([profile_file, *(others or [])], cluster, workload)
    profile = calibrated_profile(problem, plan_file, run_file, skip=skip)
    emit_document(profile, destination, tables=profile_tables(profile), json_output=json_output)
