"""``nbxtensor models``: the demonstration's model files."""

import click

from nbxtensor.onnx.zoo import files


@click.group()
def command() -> None:
    """Fetch or list the demonstration's model files."""


@command.command()
def fetch() -> None:
    """Download what is missing, check everything, and print the paths."""
    for path in files.fetch_all(lambda text: click.echo(text, err=True)):
        click.echo(str(path))


@command.command(name="list")
def show() -> None:
    """Print the files, the packages they come from, and whether they are here."""
    for package in files.PACKAGES:
        for name, digest in package.files.values():
            state = "present" if files.is_present(name) else "missing"
            click.echo(f"{state}  {name:24} {package.requirement:28} sha256 {digest}")
    click.echo(f"in {files.models_dir()}")
