"""rdma-core's Python binding on the software device: each object, the states of
queue pairs, what memory allows, completion events.
"""

import errno
import os
import select
import signal
import socket
import sys
import unittest

_INSIDE = 'PYVERBS_TEST_INSIDE'

if __name__ == '__main__' and _INSIDE not in os.environ:
    # The binding is linked against libibverbs: start again with ours in front.
    os.environ[_INSIDE] = '1'
    wrapper = os.path.abspath(sys.argv.pop(1))
    os.execv(wrapper, [wrapper, '--', sys.executable,
                       os.path.abspath(__file__), *sys.argv[1:]])

# pylint: disable=wrong-import-position
from pyverbs import enums as e
from pyverbs.addr import AH, AHAttr, GlobalRoute
from pyverbs.cq import CQ, CQEX, CompChannel, CqInitAttrEx, PollCqAttr
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import (QP, DataBuffer, QPAttr, QPCap, QPEx, QPInitAttr,
                        QPInitAttrEx)
from pyverbs.srq import SRQ, SrqAttr, SrqInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

ACCESS = (e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE |
          e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC)
QKEY = 0x11111111
GRH_BYTES = 40
PATIENCE_S = 20  # for a test
POLL_PATIENCE = 2_000_000  # empty polls; the device yields in them


def _port_path(context):
    """The address of our own port, for both ends are on it."""
    return AHAttr(gr=GlobalRoute(dgid=context.query_gid(1, 0), sgid_index=0),
                  is_global=1, port_num=1, dlid=context.query_port(1).lid)


class Side:
    """A queue pair with all that it needs, connected by connect()."""

    def __init__(self, qp_type=e.IBV_QPT_RC, *, srq=False, channel=False,
                 send_ops=0, extended_cq=False, access=ACCESS):
        self.context = Context(name='soft0')
        self.pd = PD(self.context)
        self.channel = CompChannel(self.context) if channel else None
        if extended_cq:
            self.cq = CQEX(self.context, CqInitAttrEx(
                cqe=100, wc_flags=e.IBV_WC_STANDARD_FLAGS))
        else:
            self.cq = CQ(self.context, 100, None, self.channel, 0)
        self.mr = MR(self.pd, 4096, access)
        self.srq = (SRQ(self.pd, SrqInitAttr(SrqAttr(max_wr=10, max_sge=1)))
                    if srq else None)
        cap = QPCap(max_send_wr=10, max_recv_wr=10, max_send_sge=2,
                    max_recv_sge=2, max_inline_data=64)
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = ACCESS
        if qp_type == e.IBV_QPT_UD:
            attr.qkey = QKEY
        if send_ops:
            init = QPInitAttrEx(
                qp_type=qp_type, scq=self.cq, rcq=self.cq, cap=cap, pd=self.pd,
                srq=self.srq, comp_mask=e.IBV_QP_INIT_ATTR_PD |
                e.IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, send_ops_flags=send_ops)
            self.qp = QPEx(self.context, init, attr)
        else:
            init = QPInitAttr(qp_type=qp_type, scq=self.cq, rcq=self.cq,
                              cap=cap, srq=self.srq, sq_sig_all=1)
            self.qp = QP(self.pd, init, attr)

    def connect(self, peer):
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = ACCESS
        attr.dest_qp_num = peer.qp.qp_num
        attr.path_mtu = e.IBV_MTU_1024
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.min_rnr_timer = 1
        attr.timeout = 14
        attr.retry_cnt = attr.rnr_retry = 7
        attr.rq_psn = attr.sq_psn = 1
        attr.ah_attr = _port_path(self.context)
        self.qp.to_rts(attr)

    def sge(self, length, offset=0):
        return SGE(self.mr.buf + offset, length, self.mr.lkey)

    def post_receive(self, length=1024, wr_id=1):
        (self.srq or self.qp).post_recv(
            RecvWR(wr_id=wr_id, num_sge=1, sg=[self.sge(length)]))

    def poll(self):
        for _ in range(POLL_PATIENCE):
            count, completions = self.cq.poll()
            if count:
                return completions[0]
        raise AssertionError('no completion')

    def close(self):
        for one in (self.qp, self.srq, self.mr, self.cq, self.channel, self.pd,
                    self.context):
            if one is not None:
                one.close()


class PyverbsTest(unittest.TestCase):

    def setUp(self):
        # What blocks in the library is interrupted, and fails.
        def fail(*_):
            raise AssertionError('still waiting')
        signal.signal(signal.SIGALRM, fail)
        signal.alarm(PATIENCE_S)
        self.addCleanup(signal.alarm, 0)

    def _side(self, *args, **options):
        side = Side(*args, **options)
        self.addCleanup(side.close)
        return side

    def _pair(self, *args, **options):
        left = self._side(*args, **options)
        right = self._side(*args, **options)
        left.connect(right)
        right.connect(left)
        return left, right

    def _request(self, side, opcode, length=64, flags=e.IBV_SEND_SIGNALED,
                 **options):
        return SendWR(wr_id=7, opcode=opcode, num_sge=1, send_flags=flags,
                      sg=[side.sge(length)], **options)

    def _remote(self, left, right, opcode, rkey=None, address=None, length=64):
        request = self._request(left, opcode, length)
        request.set_wr_rdma(right.mr.rkey if rkey is None else rkey,
                            right.mr.buf if address is None else address)
        left.qp.post_send(request)
        return left.poll().status

    # --- Objects --------------------------------------------------------------

    def test_device_and_context_queries(self):
        names = [device.name.decode() for device in get_device_list()]
        self.assertEqual(names, ['soft0'])
        with Context(name='soft0') as context:
            attr = context.query_device()
            self.assertGreater(attr.max_qp, 0)
            self.assertEqual(attr.phys_port_cnt, 1)
            self.assertEqual(context.query_device_ex().orig_attr.max_qp,
                             attr.max_qp)
            port = context.query_port(1)
            self.assertEqual(port.state, e.IBV_PORT_ACTIVE)
            self.assertNotEqual(context.query_gid(1, 0), '0:' * 7 + '0')
            self.assertEqual(len(context.query_gid_table(16)) >= 1, True)
            self.assertEqual(context.query_gid_ex(1, 0).gid_index, 0)
            self.assertEqual(context.query_pkey(1, 0), 0xffff)

    def test_a_port_that_does_not_exist_is_an_error(self):
        with Context(name='soft0') as context:
            with self.assertRaises(PyverbsRDMAError):
                context.query_port(2)

    def test_memory_is_written_and_read_through_its_region(self):
        side = self._side()
        side.mr.write('software device', 15)
        self.assertEqual(side.mr.read(15, 0), b'software device')
        self.assertNotEqual(side.mr.rkey, 0)

    def test_remote_access_without_local_write_is_refused_at_registration(self):
        with Context(name='soft0') as context, PD(context) as pd:
            for access in (e.IBV_ACCESS_REMOTE_WRITE,
                           e.IBV_ACCESS_REMOTE_ATOMIC):
                with self.assertRaises(PyverbsRDMAError) as caught:
                    MR(pd, 100, access)
                self.assertEqual(caught.exception.error_code, errno.EINVAL)

    def test_a_queue_of_too_many_entries_is_refused(self):
        with Context(name='soft0') as context:
            most = context.query_device().max_cqe
            with self.assertRaises(PyverbsRDMAError) as caught:
                CQ(context, most + 1, None, None, 0)
            self.assertEqual(caught.exception.error_code, errno.EINVAL)

    def test_each_kind_of_queue_pair_is_made_and_destroyed(self):
        for qp_type in (e.IBV_QPT_RC, e.IBV_QPT_UC, e.IBV_QPT_UD):
            for srq in (False, True):
                if srq and qp_type == e.IBV_QPT_UC:
                    continue
                with self.subTest(qp_type=qp_type, srq=srq):
                    side = Side(qp_type, srq=srq)
                    self.assertGreater(side.qp.qp_num, 1)
                    side.close()

    def test_a_shared_receive_queue_is_queried_and_modified(self):
        side = self._side(srq=True)
        self.assertGreaterEqual(side.srq.query().max_wr, 10)
        # With fewer receives than its limit it would tell that at once, and then
        # have none.
        for _ in range(2):
            side.post_receive()
        side.srq.modify(SrqAttr(srq_limit=2), e.IBV_SRQ_LIMIT)
        self.assertEqual(side.srq.query().srq_limit, 2)

    def test_an_address_handle_is_made_of_a_path(self):
        side = self._side()
        AH(side.pd, attr=_port_path(side.context)).close()

    # --- States ---------------------------------------------------------------

    def test_a_connected_queue_pair_is_in_rts_with_the_values_given(self):
        left, right = self._pair()
        attr, _ = left.qp.query(e.IBV_QP_STATE | e.IBV_QP_DEST_QPN |
                                e.IBV_QP_PATH_MTU | e.IBV_QP_RNR_RETRY)
        self.assertEqual(attr.qp_state, e.IBV_QPS_RTS)
        self.assertEqual(attr.dest_qp_num, right.qp.qp_num)
        self.assertEqual(attr.path_mtu, e.IBV_MTU_1024)
        self.assertEqual(attr.rnr_retry, 7)

    def test_no_state_is_skipped(self):
        side = self._side()  # pyverbs leaves it in INIT
        for state in (e.IBV_QPS_RTS, e.IBV_QPS_SQD):
            attr = QPAttr(qp_state=state)
            with self.assertRaises(PyverbsRDMAError) as caught:
                side.qp.modify(attr, e.IBV_QP_STATE)
            self.assertEqual(caught.exception.error_code, errno.EINVAL)

    def test_a_transition_without_what_it_needs_is_refused(self):
        side = self._side()
        with self.assertRaises(PyverbsRDMAError) as caught:
            side.qp.modify(QPAttr(qp_state=e.IBV_QPS_RTR), e.IBV_QP_STATE)
        self.assertEqual(caught.exception.error_code, errno.EINVAL)

    def test_error_and_reset_are_reached_from_every_state(self):
        left, _ = self._pair()
        for state in (e.IBV_QPS_ERR, e.IBV_QPS_RESET, e.IBV_QPS_ERR):
            left.qp.modify(QPAttr(qp_state=state), e.IBV_QP_STATE)
            attr, _ = left.qp.query(e.IBV_QP_STATE)
            self.assertEqual(attr.qp_state, state)

    def test_a_send_is_refused_before_rts(self):
        side = self._side()
        with self.assertRaises(PyverbsRDMAError):
            side.qp.post_send(self._request(side, e.IBV_WR_SEND))

    def test_receives_are_flushed_in_the_error_state(self):
        side = self._side()
        side.post_receive(wr_id=42)
        side.qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)
        completion = side.poll()
        self.assertEqual(completion.status, e.IBV_WC_WR_FLUSH_ERR)
        self.assertEqual(completion.wr_id, 42)

    # --- Traffic --------------------------------------------------------------

    def test_a_message_arrives_on_each_connected_transport(self):
        for qp_type in (e.IBV_QPT_RC, e.IBV_QPT_UC):
            with self.subTest(qp_type=qp_type):
                left, right = self._pair(qp_type)
                right.post_receive()
                left.mr.write('message', 7)
                left.qp.post_send(self._request(left, e.IBV_WR_SEND, 7))
                self.assertEqual(left.poll().status, e.IBV_WC_SUCCESS)
                completion = right.poll()
                self.assertEqual(completion.status, e.IBV_WC_SUCCESS)
                self.assertEqual(completion.opcode, e.IBV_WC_RECV)
                self.assertEqual(completion.byte_len, 7)
                self.assertEqual(right.mr.read(7, 0), b'message')

    def test_a_message_arrives_in_a_shared_receive_queue(self):
        left, right = self._pair(srq=True)
        right.post_receive(wr_id=5)
        left.mr.write('shared', 6)
        left.qp.post_send(self._request(left, e.IBV_WR_SEND, 6))
        self.assertEqual(left.poll().status, e.IBV_WC_SUCCESS)
        completion = right.poll()
        self.assertEqual((completion.wr_id, completion.qp_num),
                         (5, right.qp.qp_num))
        self.assertEqual(right.mr.read(6, 0), b'shared')

    def test_a_datagram_arrives_behind_40_bytes(self):
        left = self._side(e.IBV_QPT_UD)
        right = self._side(e.IBV_QPT_UD)  # pyverbs has them in RTS at once
        right.post_receive(GRH_BYTES + 100)
        left.mr.write('datagram', 8)
        with AH(left.pd, attr=_port_path(left.context)) as ah:
            request = self._request(left, e.IBV_WR_SEND, 8)
            request.set_wr_ud(ah, right.qp.qp_num, QKEY)
            left.qp.post_send(request)
            self.assertEqual(left.poll().status, e.IBV_WC_SUCCESS)
            completion = right.poll()
        self.assertEqual(completion.status, e.IBV_WC_SUCCESS)
        self.assertEqual(completion.byte_len, GRH_BYTES + 8)
        self.assertEqual(completion.src_qp, left.qp.qp_num)
        self.assertTrue(completion.wc_flags & e.IBV_WC_GRH)
        self.assertEqual(right.mr.read(8, GRH_BYTES), b'datagram')

    def test_rdma_write_read_and_atomics(self):
        left, right = self._pair()
        left.mr.write('written!', 8)
        self.assertEqual(
            self._remote(left, right, e.IBV_WR_RDMA_WRITE, length=8),
            e.IBV_WC_SUCCESS)
        self.assertEqual(right.mr.read(8, 0), b'written!')
        right.mr.write('to-read!', 8)
        self.assertEqual(
            self._remote(left, right, e.IBV_WR_RDMA_READ, length=8),
            e.IBV_WC_SUCCESS)
        self.assertEqual(left.mr.read(8, 0), b'to-read!')
        right.mr.write((40).to_bytes(8, sys.byteorder), 8)
        request = self._request(left, e.IBV_WR_ATOMIC_FETCH_AND_ADD, 8)
        request.set_wr_atomic(right.mr.rkey, right.mr.buf, 2, 0)
        left.qp.post_send(request)
        self.assertEqual(left.poll().status, e.IBV_WC_SUCCESS)
        self.assertEqual(int.from_bytes(left.mr.read(8, 0), sys.byteorder), 40)
        self.assertEqual(int.from_bytes(right.mr.read(8, 0), sys.byteorder), 42)

    # --- What memory allows ---------------------------------------------------

    def test_each_missing_permission_is_a_remote_access_error(self):
        write, read = e.IBV_ACCESS_REMOTE_WRITE, e.IBV_ACCESS_REMOTE_READ
        for opcode, access in ((e.IBV_WR_RDMA_WRITE, read),
                               (e.IBV_WR_RDMA_READ, write)):
            with self.subTest(opcode=opcode):
                left, right = self._pair(
                    access=e.IBV_ACCESS_LOCAL_WRITE | access)
                self.assertEqual(self._remote(left, right, opcode),
                                 e.IBV_WC_REM_ACCESS_ERR)
                attr, _ = left.qp.query(e.IBV_QP_STATE)
                self.assertEqual(attr.qp_state, e.IBV_QPS_ERR)

    def test_a_wrong_key_and_a_wrong_address_are_remote_access_errors(self):
        for change in ('rkey', 'address'):
            with self.subTest(change=change):
                left, right = self._pair()
                options = {'rkey': right.mr.rkey + 1} if change == 'rkey' else {
                    'address': right.mr.buf + 4096 - 8}
                self.assertEqual(
                    self._remote(left, right, e.IBV_WR_RDMA_WRITE, **options),
                    e.IBV_WC_REM_ACCESS_ERR)

    def test_a_wrong_local_key_is_a_local_protection_error(self):
        left, right = self._pair()
        right.post_receive()
        left.qp.post_send(SendWR(
            wr_id=1, num_sge=1, opcode=e.IBV_WR_SEND,
            sg=[SGE(left.mr.buf, 8, left.mr.lkey + 1)]))
        self.assertEqual(left.poll().status, e.IBV_WC_LOC_PROT_ERR)

    # --- Completion events ----------------------------------------------------

    def test_an_event_comes_for_an_armed_queue_only(self):
        left, right = self._pair(channel=True)
        descriptor = right.channel.comp_channel_fd if hasattr(
            right.channel, 'comp_channel_fd') else None
        right.post_receive()
        left.qp.post_send(self._request(left, e.IBV_WR_SEND))
        self.assertEqual(right.poll().status, e.IBV_WC_SUCCESS)
        right.cq.req_notify()
        right.post_receive()
        left.qp.post_send(self._request(left, e.IBV_WR_SEND))
        if descriptor is not None:
            self.assertTrue(select.select([descriptor], [], [], 10)[0])
        right.channel.get_cq_event(right.cq)
        right.cq.ack_events(1)
        self.assertEqual(right.poll().status, e.IBV_WC_SUCCESS)

    def test_a_solicited_event_waits_for_a_solicited_message(self):
        left, right = self._pair(channel=True)
        right.post_receive(wr_id=1)
        right.post_receive(wr_id=2)
        right.cq.req_notify(solicited_only=True)
        left.qp.post_send(self._request(left, e.IBV_WR_SEND))
        left.qp.post_send(self._request(
            left, e.IBV_WR_SEND,
            flags=e.IBV_SEND_SIGNALED | e.IBV_SEND_SOLICITED))
        right.channel.get_cq_event(right.cq)
        right.cq.ack_events(1)
        # Both are there: the event was the second one's.
        self.assertEqual([right.poll().wr_id, right.poll().wr_id], [1, 2])

    # --- The extended interfaces ----------------------------------------------

    def _poll_extended(self, side, read):
        for _ in range(POLL_PATIENCE):
            status = side.cq.start_poll(PollCqAttr())
            if status == 0:
                self.assertEqual(side.cq.status, e.IBV_WC_SUCCESS)
                result = read(side.cq)
                side.cq.end_poll()
                return result
            self.assertEqual(status, errno.ENOENT)
        raise AssertionError('no completion')

    def test_the_extended_interfaces_send_with_immediate(self):
        left, right = self._pair(
            send_ops=e.IBV_QP_EX_WITH_SEND_WITH_IMM, extended_cq=True)
        right.post_receive(wr_id=3)
        left.mr.write('extended', 8)
        left.qp.wr_start()
        left.qp.wr_id = 9
        left.qp.wr_flags = e.IBV_SEND_SIGNALED
        left.qp.wr_send_imm(0x12345678)
        left.qp.wr_set_sge(left.sge(8))
        left.qp.wr_complete()
        self.assertEqual(self._poll_extended(left, lambda cq: cq.wr_id), 9)
        self.assertEqual(
            self._poll_extended(right, lambda cq: (
                cq.wr_id, cq.read_byte_len(), socket.ntohl(cq.read_imm_data()),
                cq.read_opcode(), cq.read_qp_num(), cq.read_wc_flags())),
            (3, 8, 0x12345678, e.IBV_WC_RECV, right.qp.qp_num,
             e.IBV_WC_WITH_IMM))
        self.assertEqual(right.mr.read(8, 0), b'extended')

    def test_extended_inline_data_is_copied_at_the_call(self):
        left, right = self._pair(send_ops=e.IBV_QP_EX_WITH_SEND)
        right.post_receive()
        left.mr.write('inline', 6)
        left.qp.wr_start()
        left.qp.wr_id = 1
        left.qp.wr_flags = e.IBV_SEND_SIGNALED
        left.qp.wr_send()
        left.qp.wr_set_inline_data_list(
            2, [DataBuffer(left.mr.buf, 4), DataBuffer(left.mr.buf + 4, 2)])
        left.mr.write('XXXXXX', 6)
        left.qp.wr_complete()
        self.assertEqual(left.poll().status, e.IBV_WC_SUCCESS)
        self.assertEqual(right.poll().byte_len, 6)
        self.assertEqual(right.mr.read(6, 0), b'inline')

    def test_an_aborted_batch_posts_nothing(self):
        left, right = self._pair(send_ops=e.IBV_QP_EX_WITH_RDMA_WRITE)
        left.mr.write('abort', 5)
        for abort in (True, False):
            left.qp.wr_start()
            left.qp.wr_id = 1 if abort else 2
            left.qp.wr_flags = e.IBV_SEND_SIGNALED
            left.qp.wr_rdma_write(right.mr.rkey,
                                  right.mr.buf + (0 if abort else 100))
            left.qp.wr_set_sge(left.sge(5))
            if abort:
                left.qp.wr_abort()
            else:
                left.qp.wr_complete()
        self.assertEqual(left.poll().wr_id, 2)
        self.assertEqual(right.mr.read(5, 100), b'abort')
        self.assertNotEqual(right.mr.read(5, 0), b'abort')

    def test_a_batch_with_something_wrong_posts_nothing(self):
        left, right = self._pair(send_ops=e.IBV_QP_EX_WITH_RDMA_WRITE)
        left.mr.write('wrong', 5)
        left.qp.wr_start()
        left.qp.wr_id = 1
        left.qp.wr_flags = e.IBV_SEND_SIGNALED
        left.qp.wr_rdma_write(right.mr.rkey, right.mr.buf)
        left.qp.wr_set_sge(left.sge(5))
        left.qp.wr_send()  # was not asked for at creation
        left.qp.wr_set_sge(left.sge(5))
        with self.assertRaises(PyverbsRDMAError):
            left.qp.wr_complete()
        self.assertEqual(left.cq.poll()[0], 0)
        self.assertNotEqual(right.mr.read(5, 0), b'wrong')

    def test_operations_that_the_device_lacks_are_refused_at_creation(self):
        for qp_type, operation in (
                (e.IBV_QPT_RC, e.IBV_QP_EX_WITH_BIND_MW),
                (e.IBV_QPT_RC, e.IBV_QP_EX_WITH_TSO),
                (e.IBV_QPT_UC, e.IBV_QP_EX_WITH_RDMA_READ),
                (e.IBV_QPT_UD, e.IBV_QP_EX_WITH_RDMA_WRITE)):
            with self.assertRaises(PyverbsRDMAError) as caught:
                Side(qp_type, send_ops=operation)
            self.assertEqual(caught.exception.error_code, errno.EOPNOTSUPP)

    def test_time_stamps_are_refused_at_creation(self):
        with Context(name='soft0') as context:
            with self.assertRaises(PyverbsRDMAError) as caught:
                CQEX(context, CqInitAttrEx(
                    cqe=10,
                    wc_flags=e.IBV_WC_EX_WITH_COMPLETION_TIMESTAMP))
            self.assertEqual(caught.exception.error_code, errno.EOPNOTSUPP)


if __name__ == '__main__':
    unittest.main()
