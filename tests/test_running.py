from latentmill.pipeline.running import is_interruption


def test_an_interruption_is_found_behind_the_error_that_a_library_made_of_it() -> None:
    error = ImportError("half imported")
    error.__context__ = KeyboardInterrupt()
    assert is_interruption(error)
    assert not is_interruption(ImportError("missing"))


def test_errors_whose_causes_lead_in_a_circle_are_looked_at_once() -> None:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__context__ = two, one
    assert not is_interruption(one)
    two.__context__ = KeyboardInterrupt()
    assert is_interruption(one)
