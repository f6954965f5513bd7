"""The fixture that opens pages notices what is wrong with one."""

from tests import slow_cases
from tests.browser import broken_images

_DOT = (
    'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK'
    '+kcQAAAABJRU5ErkJggg=='
)


@slow_cases.parametrize(
    1,
    ('body', 'problem'),
    [
        ('<script>console.error("printed")</script>', 'printed'),
        ('<script>throw new Error("thrown")</script>', 'thrown'),
        ('<img src="absent.png">', 'absent.png'),
    ],
)
def test_problems_of_a_page_are_collected(open_page, tmp_path, body, problem):
    path = tmp_path / 'page.html'
    path.write_text(body)
    page = open_page(path)
    assert problem in ' '.join(page.problems)
    page.problems.clear()


def test_broken_images_are_found_out_of_sight_too(open_page, tmp_path):
    path = tmp_path / 'page.html'
    far = '<div style="height:9000px"></div><img loading="lazy" src="absent.png">'
    path.write_text(f'<img src="{_DOT}">{far}')
    page = open_page(path)
    assert [source.rsplit('/')[-1] for source in broken_images(page)] == ['absent.png']
    page.problems.clear()
