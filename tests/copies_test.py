"""The data path copies with HostCopy and NonTemporalCopy alone: the speed of
memcpy depends on where its ranges begin in their pages (reduction/host_copy.h).

By the sources, and by what the compiler made of those that copy: it can make a
call of memcpy of a loop.
"""

import os
import pathlib
import re
import subprocess
import unittest

SOURCES = os.environ["SOURCES"].split()
ARCHIVES = os.environ["ARCHIVES"].split()

# In these memcpy may be of a constant size alone, which makes no call.
OBJECTS = {
    "host_copy", "host_reduction", "host_accelerator", "packet_reader",
    "packet_requester", "remote_memory", "requester", "responder",
    "slot_transfer",
}
COPIES = {"memcpy", "memmove", "mempcpy", "__memcpy_chk", "__memmove_chk"}

CALL = re.compile(r"\b(memcpy|memmove|mempcpy|bcopy|std::copy|std::copy_n|"
                  r"std::copy_backward|std::ranges::copy\w*)\s*\(")
COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)

# What copies no more than 2 KiB, or not on the data path: {file: {call: why}}.
SMALL = {
    "cuda/thread_accelerator.cc": {
        "std::copy(fit.begin(), fit.end(), operation.operands.begin() + 1)":
            "pointers, one for each source",
    },
    "engine/job_trace.cc": {
        "memcpy(static_cast<void*>(events.data()), bytes.data(), "
        "events.size() * sizeof(TraceEvent))":
            "at the end of a traced job",
    },
    "engine/c_inquiries.cc": {
        "std::copy_n(blob.begin(), std::min(blob.size(), capacity), "
        "receive + rank * capacity)":
            "a blob of an exchange, for control data",
        "std::copy_n(lost->begin(), std::min(capacity, lost->size()), ranks)":
            "numbers of ranks that are gone",
    },
    "engine/c_interface.h": {
        "memcpy(&whole, from, std::min(size, sizeof whole))":
            "a call or options, 120 bytes at most",
        "memcpy(to, &from, std::min<std::size_t>(size, sizeof from))":
            "counters, 56 bytes at most",
    },
    "pipeline/rails/rail_connection.cc": {
        "memcpy(static_cast<void*>(&address), text.data(), kFixed)":
            "an address, when connections are made",
        "memcpy(static_cast<void*>(&address), text.data(), text.size())":
            "an address, when connections are made",
    },
    "pipeline/rails/rail_transport.cc": {
        "std::copy(std::begin(device(rail).info().gid.raw), "
        "std::end(device(rail).info().gid.raw), ip.bytes)":
            "a GID, when connections are made",
    },
    "pipeline/test_network.cc": {
        "std::copy_n(piece.data, part, next.target.data + done)": "of a test",
    },
    "reduction/host_copy.cc": {
        "memcpy(piece, at, kBytes)": "16 bytes at most",
        "memcpy(target, piece, kBytes)": "16 bytes at most",
        "memcpy(first, from, kBytes)": "32 bytes at most",
        "memcpy(last, from + bytes - kBytes, kBytes)": "32 bytes at most",
        "memcpy(to, first, kBytes)": "32 bytes at most",
        "memcpy(to + bytes - kBytes, last, kBytes)": "32 bytes at most",
    },
    "verbs/soft/datagrams.cc": {
        "std::copy(payload.begin(), payload.end(), parts + 1)":
            "a scatter list",
    },
    "verbs/soft/extended_queue_pair.cc": {
        "std::copy_n(sges, count, SgesOf(request))": "a scatter list",
        "memcpy(start + bytes, buffers[i].addr, buffers[i].length)":
            "inline data, kMaxInline",
    },
    "verbs/soft/network/connector.cc": {
        "std::copy_n(gid.raw, bytes.size(), bytes.begin())": "a GID",
    },
    "verbs/soft/network/introduction.cc": {
        "memcpy(claim.from.gid.raw, gid.data(), gid.size())": "a GID",
    },
    "verbs/soft/receive_queue.cc": {
        "std::copy_n(requests->sg_list, requests->num_sge, receive.sges)":
            "a scatter list",
    },
    "verbs/soft/send_queue.cc": {
        "std::copy_n(request.sg_list, request.num_sge, stored.sges)":
            "a scatter list",
        "memcpy(target, reinterpret_cast<const void*>(sge.addr), sge.length)":
            "inline data, kMaxInline",
    },
    "verbs/soft/shared_receive_queue.cc": {
        "std::copy_n(requests->sg_list, requests->num_sge, receive.sges)":
            "a scatter list",
    },
    "verbs/soft/verbs_functions.cc": {
        "memcpy(static_cast<void*>(attr), &whole, "
        "std::min(attr_bytes, sizeof whole))": "attributes",
        "memcpy(entry, &whole, std::min(entry_bytes, sizeof whole))":
            "an entry of the table of GIDs",
    },
}


def arguments_of(text, begin):
    """The text between the parenthesis before `begin` and its partner."""
    depth = 1
    for end in range(begin, len(text)):
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        if depth == 0:
            return text[begin:end]
    return text[begin:]


def last_of(arguments):
    """The last argument."""
    depth = 0
    for at in range(len(arguments) - 1, -1, -1):
        depth += {")": 1, "]": 1, "}": 1, "(": -1, "[": -1, "{": -1}.get(
            arguments[at], 0)
        if depth == 0 and arguments[at] == ",":
            return arguments[at + 1:].strip()
    return arguments.strip()


def copies_in(text):
    """The calls whose size is no sizeof, each on one line."""
    text = COMMENT_OR_STRING.sub(" ", text)
    calls = []
    for match in CALL.finditer(text):
        arguments = arguments_of(text, match.end())
        if "mem" not in match[1] or not re.fullmatch(
                r"sizeof ?[\w:.>-]+|sizeof\([^()]*\)|\d+", last_of(arguments)):
            calls.append(" ".join(f"{match[1]}({arguments})".split()))
    return calls


def undefined_of(archive):
    """{object: the names that it needs from elsewhere}."""
    text = subprocess.run(
        ["nm", "--undefined-only", archive], check=True,
        stdout=subprocess.PIPE, universal_newlines=True,
        env=dict(os.environ, LC_ALL="C")).stdout
    names = {}
    for block in re.split(r"\n(?=\S+\.o:\n)", text):
        member = re.search(r"^(\S+?)(?:\.pic)?\.o:$", block, re.M)
        if member:
            names[member[1]] = set(re.findall(r" U (\S+)", block))
    return names


class SourcesTest(unittest.TestCase):

    def test_the_data_path_calls_no_copy_of_a_size_that_is_not_small(self):
        found = {}
        for source in SOURCES:
            calls = copies_in(pathlib.Path(source).read_text(encoding="utf-8"))
            if calls:
                found[source] = set(calls)
        for source in sorted({*found, *SMALL}):
            with self.subTest(source=source):
                self.assertEqual(
                    found.get(source, set()), set(SMALL.get(source, {})),
                    "use HostCopy or NonTemporalCopy (reduction/host_copy.h), "
                    "or say in SMALL why it is small")

    def test_the_sources_of_every_folder_are_read(self):
        folders = {os.path.dirname(source) for source in SOURCES}
        self.assertLessEqual(
            {"cuda", "engine", "memory_pool", "pipeline", "pipeline/host",
             "pipeline/rails", "reduction", "verbs/soft",
             "verbs/soft/network"}, folders)

    def test_a_copy_is_recognised(self):
        for text in ("std::memcpy(to, from, bytes);",
                     "memmove(to,\n        from, sizeof word * count);",
                     "std::copy_n(from, count, to);",
                     "memcpy(to, At(sizeof x, 3), n.size());"):
            self.assertEqual(len(copies_in(text)), 1, text)
        for text in ("// memcpy(to, from, bytes)", '"memcpy(a, b, c)"',
                     "memcpy(&word, source, sizeof word);",
                     "std::memcpy(&x, y, sizeof(X));", "HostCopy(a, b, c);"):
            self.assertEqual(copies_in(text), [], text)


class ObjectsTest(unittest.TestCase):

    def test_the_compiler_made_no_call_of_memcpy_in_what_copies(self):
        seen = set()
        for archive in ARCHIVES:
            for member, names in undefined_of(archive).items():
                if member in OBJECTS:
                    seen.add(member)
                    self.assertEqual(names & COPIES, set(),
                                     f"{member} in {archive}")
        self.assertEqual(seen, OBJECTS)


if __name__ == "__main__":
    unittest.main()
