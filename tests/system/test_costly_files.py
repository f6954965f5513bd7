import io

import pytest
from PIL import Image

from object_detection.data import image_files
from object_detection.errors import UnusableError
from tests import rows


def saved(format, **options):
    file = io.BytesIO()
    Image.new('L', (4, 3)).save(file, format, **options)
    return file.getvalue()


def test_a_jpeg_of_countless_scans_is_refused():
    still = saved('JPEG', progressive=True)
    scan = still[still.rindex(b'\xff\xda') : -2]
    few, many = (still[:-2] + count * scan + still[-2:] for count in (20, 120))
    assert image_files.read_upright(few).encoded == few
    with pytest.raises(UnusableError, match='scans; expected a JPEG file of at most 100'):
        image_files.read_upright(many)


COMMENTS = {'of one block': b'!\xfe\1a\0', 'of many': b'!\xfe' + 9 * b'\1a' + b'\0'}


@rows.parametrize('comment', COMMENTS.values())
@rows.parametrize('place', [b',', b';'])
def test_a_gif_of_countless_comments_is_refused(comment, place):
    still = saved('GIF')
    at = still.rindex(place)
    few, many = (still[:at] + count * comment + still[at:] for count in (9, 30_000))
    assert image_files.stored_size(few) == (3, 4)
    for file in (many, many.replace(comment, b'\0' + comment, 1)):
        with pytest.raises(UnusableError, match='has comments of more than 65536 bytes'):
            image_files.read_upright(file)
