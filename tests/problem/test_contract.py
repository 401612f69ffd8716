from tests.helpers.documents import make_cluster, make_problem, make_profile


def test_a_changed_copy_has_a_digest_of_its_own() -> None:
    for document, change in (
        (make_profile(), {"statistic": "min_ns"}),
        (make_cluster(), {"links": ()}),
    ):
        before = document.digest  # worked out and kept
        changed = document.model_copy(update=change)
        assert changed.digest != before
        assert document.digest == before
        assert document.model_copy().digest == before


def test_a_copy_keeps_what_its_fields_say() -> None:
    workload = make_problem().workload
    assert workload.model_copy(update={"global_batch_size": 3}).global_batch_size == 3
    assert workload.model_copy(deep=True) == workload
