"""python -m headrace.samples: see `headrace.samples`."""

from pathlib import Path

import click

from headrace.samples import bulletins, copy_samples, put_samples


@click.command()
@click.option("--to", type=click.Path(path_type=Path), default=Path("samples"), show_default=True, help="The folder.")
@click.option("--queue", type=click.Path(path_type=Path), help="Also put the bulletins here; created if missing.")
def main(to: Path, queue: Path | None) -> None:
    """Copy the sample files of the tutorial, and put them into a queue."""
    click.echo(f"{len(copy_samples(to))} sample files in {to}")
    if queue is not None:
        click.echo(f"{queue}: {len(bulletins())} bulletins, {put_samples(queue)} of them new")


if __name__ == "__main__":
    main()
