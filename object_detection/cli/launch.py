"""`tfod launch`: starts several workers of a training on this machine, and watches them."""

import sys

import click

from object_detection.cli.main import COMMANDS
from object_detection.training import jobs
from object_detection.training.distribution import launcher


# Options after COMMAND belong to it, regardless of their names.
@click.command(
    name='launch',
    context_settings={'allow_interspersed_args': False},
    epilog='Exit status: that of COMMAND. 75, or 137 after kills, says that workers were lost more '
    'often in a row than --max_restarts; 130 is after ctrl-C and 143 after SIGTERM.',
)
@click.option(
    '--num_processes',
    '--num_workers',
    'num_processes',
    type=int,
    required=True,
    help='Workers of this machine.',
)
@click.option(
    '--hosts',
    '--worker_hosts',
    'hosts',
    default='',
    help='All machines, e.g. host0,host1: a launcher on each.',
)
@click.option('--host_index', default=0, show_default=True, help='Which of --hosts this is.')
@click.option('--port', type=int, help='First port of each machine; 23456 with --hosts.')
@click.option(
    '--max_restarts',
    default=3,
    show_default=True,
    help='How often to start again without a new checkpoint.',
)
@click.option('--grace', default=10.0, show_default=True, help='Seconds before others are killed.')
@click.argument('command', nargs=-1, required=True, type=click.UNPROCESSED)
def command(command: tuple[str, ...], hosts: str, **options) -> None:
    """Runs COMMAND in several processes that train together: tfod launch --num_processes 2 --
    train --config FILE --model_dir DIR.

    COMMAND is one of tfod, or any other program that reads TF_CONFIG. When a worker is killed, or
    its machine is lost, all are started again and go on from the newest checkpoint.
    """
    jobs.show_log()
    if command[0] in COMMANDS:
        command = (sys.executable, '-m', 'object_detection.cli.main', *command)
    machines = [name.strip() for name in hosts.split(',') if name.strip()]
    sys.exit(launcher.run(launcher.Launch(command, hosts=machines, **options)))
