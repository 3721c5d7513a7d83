"""Work for the event loop of another thread: all of it, in order, with few wakeups."""

import asyncio
import threading

import pytest

from sparring.gateway.mailbox import Mailbox


class CountingLoop:
    """Counts wakeups; runs what it was given when asked."""

    def __init__(self):
        self.calls = []

    def call_soon_threadsafe(self, function):
        self.calls.append(function)

    def run(self):
        calls, self.calls = self.calls, []
        for each in calls:
            each()
        return len(calls)


def test_what_waits_shares_one_wakeup():
    loop, done = CountingLoop(), []
    mailbox = Mailbox(loop)
    for number in range(5):
        mailbox.post(lambda number=number: done.append(number))
    assert loop.run() == 1
    assert done == [0, 1, 2, 3, 4]
    mailbox.post(lambda: done.append(5))
    assert loop.run() == 1
    assert done[-1] == 5


def test_what_is_posted_while_others_are_called_is_called_too():
    loop, done = CountingLoop(), []
    mailbox = Mailbox(loop)
    mailbox.post(lambda: mailbox.post(lambda: done.append("second")))
    loop.run()
    assert done == ["second"]


def test_posts_of_several_threads_all_arrive_in_their_order():
    async def collect():
        mailbox, done, everything = Mailbox(asyncio.get_running_loop()), [], asyncio.Event()

        def note(item):
            done.append(item)
            if len(done) == 4000:
                everything.set()

        def post(name):
            for number in range(1000):
                mailbox.post(lambda number=number: note((name, number)))

        threads = [threading.Thread(target=post, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        await asyncio.wait_for(everything.wait(), 30)
        return done

    done = asyncio.run(collect())
    for name in range(4):
        assert [number for each, number in done if each == name] == list(range(1000))


def test_a_closed_loop_is_an_error_each_time():
    loop = asyncio.new_event_loop()
    mailbox = Mailbox(loop)
    loop.close()
    for _ in range(2):
        with pytest.raises(RuntimeError):
            mailbox.post(print)
