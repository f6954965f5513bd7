"""`python -m object_detection` is the command `tfod`."""

from object_detection.cli.main import main

if __name__ == '__main__':
    main(prog_name='python -m object_detection')
