import os

from object_detection.system.grouping import Groups


def test_rows_are_grouped_by_image_in_order():
    groups = Groups()
    groups.add('b', [1], 7)
    for key, name in (('a', 'x/1.jpg'), ('b', 'y\\1.jpg'), ('a', '2.jpg')):
        groups.add_image(key, name, {'name': name})
    groups.add('a', 2)
    groups.add('b', None)
    groups.add(None, 4, 2**70)
    assert list(groups) == [({'name': 'x/1.jpg'}, [2]), ({'name': 'y\\1.jpg'}, [[1], None])]
    assert list(groups.repeated_images()) == [('a', '2.jpg')]
    assert list(groups.without_image()) == [('None', str(2**70))]
    assert list(groups.names()) == ['x/1.jpg', 'y\\1.jpg', '2.jpg']
    assert not groups.names_are_alone()
    assert (groups.num_images(), groups.rows_of('b'), groups.rows_of('c')) == (3, [[1], None], [])
    assert groups.has_image('b')
    assert not groups.has_image('c')
    assert groups.has_row(7)
    assert not groups.has_row('7')


def test_names_of_files_need_not_be_utf_8():
    groups, name = Groups(), os.fsdecode(b'\xff.jpg')
    groups.add_image(name, name, name)
    assert (list(groups), list(groups.names())) == ([(name, [])], [name])
