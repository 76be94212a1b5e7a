"""``nbxtensor models``: the demonstration's model files."""

import click

from nbxtensor.onnx.zoo import files


@click.group()
def command() -> None:
    """Fetch or list the demonstration's model files.

    NBX_MODELS_DIR says where they are kept.

    \b
    Examples:
      nbxtensor models list
      NBX_MODELS_DIR=/srv/models nbxtensor models fetch
    """


@command.command(short_help="Download and check the files.")
def fetch() -> None:
    """Download what is missing, check everything, and print the paths.

    \b
    Example:
      nbxtensor models fetch
    """
    for path in files.fetch_all(lambda text: click.echo(text, err=True)):
        click.echo(str(path))


@command.command(name="list", short_help="Print the files, and whether they are here.")
def show() -> None:
    """Print the files, the packages they come from, and whether they are here.

    \b
    Example:
      nbxtensor models list
    """
    for package in files.PACKAGES:
        for name, digest in package.files.values():
            state = "present" if files.is_present(name) else "missing"
            click.echo(f"{state}  {name:24} {package.requirement:28} sha256 {digest}")
    click.echo(f"in {files.models_dir()}")
