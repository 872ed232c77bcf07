"""The gang's store, in this process and as the coordination service keeps it."""

import socket
import threading

import pytest
from jax._src.lib import _jax

from tests.trainer.builders import some_gang
from tests.waiting import wait_for
from trainer.gang import GangError, LocalStore, ServiceStore

SERVICE_S = 20


@pytest.fixture(scope="module")
def client():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    service = _jax.get_distributed_runtime_service(address, 1, heartbeat_timeout=SERVICE_S)
    client = _jax.get_distributed_runtime_client(address, 0, init_timeout=SERVICE_S)
    client.connect()
    yield client
    client.shutdown()
    service.shutdown()


@pytest.fixture(params=["local", "service"])
def store(request):
    if request.param == "local":
        return LocalStore()
    store = ServiceStore(request.getfixturevalue("client"))
    for folder in ("a", "ab"):
        for key in store.entries(folder):
            store.forget(key)
    return store


def test_store_lists_exactly_the_keys_of_a_folder(store):
    store.put("a/1", "one")
    store.put("a/2/x", "two")
    store.put("ab/3", "three")
    assert store.entries("a") == {"a/1": "one", "a/2/x": "two"}
    assert store.entries("b") == {}


def test_store_value_put_twice_is_the_second(store):
    store.put("a/1", "one")
    store.put("a/1", "uno")
    assert store.wait("a/1", 1) == "uno"


def test_store_key_forgotten_goes_with_all_below_it(store):
    for key in ("a/1", "a/1/x", "a/12"):
        store.put(key, "one")
    store.forget("a/1")
    assert set(store.entries("a")) == {"a/12"}
    assert store.wait("a/1", 0.01) is None


def test_store_wait_ends_when_another_thread_puts(store):
    heard = []
    thread = threading.Thread(target=lambda: heard.append(store.wait("a/late", 10)))
    thread.start()
    store.put("a/late", "here")
    thread.join(10)
    assert heard == ["here"]


def test_gather_returns_values_by_rank():
    first, second = some_gang(2)
    answers = []
    thread = threading.Thread(target=lambda: answers.append(second.gather("name", "b", 10)))
    thread.start()
    assert first.gather("name", "a", 10) == ["a", "b"]
    thread.join(10)
    assert answers == [["a", "b"]]


def test_gather_without_a_rank_names_the_missing():
    first, _, third = some_gang(3)
    third.store.put("verdict/2", "yes")
    with pytest.raises(GangError, match=r"verdict: nothing from ranks \[1\]"):
        first.gather("verdict", "yes", 0.05)


def test_share_gives_all_what_rank_0_said():
    first, second = some_gang(2)
    assert first.share("start", "go", 1) == "go"
    assert second.share("start", None, 1) == "go"
    with pytest.raises(GangError, match="nothing from rank 0"):
        second.share("other", None, 0.05)


def test_rank_0_leaves_only_after_the_others():
    first, second = some_gang(2)
    thread = threading.Thread(target=first.part, args=(10, 0.0))
    thread.start()
    wait_for(lambda: first.store.entries("leaving"), 10, "rank 0 to want to leave")
    assert thread.is_alive()
    second.part(10)
    thread.join(10)
    assert not thread.is_alive()
