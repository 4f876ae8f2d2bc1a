"""Our libibverbs.so.1 against the installed one."""

import ctypes
import os
import random
import subprocess
import sys
import unittest

from verbs.soft.libibverbs import symbol_table

_LIBRARY = None  # path of ours


def _installed_path():
  """Where the dynamic linker finds the installed library."""
  installed = ctypes.CDLL('libibverbs.so.1')
  del installed
  with open('/proc/self/maps') as maps:
    for line in maps:
      path = line.split(maxsplit=5)[-1].strip()
      if os.path.basename(path).startswith('libibverbs.so'):
        return path
  raise RuntimeError('libibverbs.so.1 is loaded from nowhere')


class ExportsTest(unittest.TestCase):

  @classmethod
  def setUpClass(cls):
    cls.installed_path = _installed_path()
    cls.installed = ctypes.CDLL(cls.installed_path)
    cls.ours = ctypes.CDLL(_LIBRARY)
    assert cls.ours._handle != cls.installed._handle

  def test_exports_the_symbols_and_versions_of_the_installed_library(self):
    def symbols(path):
      return {(s.name, s.version, s.is_default, s.is_function,
               None if s.is_function else s.size)
              for s in symbol_table.exported_symbols(path)}
    ours, theirs = symbols(_LIBRARY), symbols(self.installed_path)
    self.assertGreater(len(theirs), 50)
    self.assertEqual(ours - theirs, set(), 'exported by ours alone')
    self.assertEqual(theirs - ours, set(), 'missing in ours')

  def test_version_nodes_inherit_as_in_the_installed_library(self):
    self.assertEqual(symbol_table.version_nodes(_LIBRARY),
                     symbol_table.version_nodes(self.installed_path))

  def test_both_names_are_one_library(self):
    other = os.path.join(os.path.dirname(_LIBRARY), 'libibverbs.so')
    self.assertTrue(os.path.samefile(_LIBRARY, other))

  def test_names_of_enumerators_are_those_of_the_installed_library(self):
    for name in ('ibv_node_type_str', 'ibv_port_state_str',
                 'ibv_event_type_str', 'ibv_wc_status_str'):
      for library in (self.ours, self.installed):
        getattr(library, name).restype = ctypes.c_char_p
      for value in range(-3, 40):
        self.assertEqual(getattr(self.ours, name)(value),
                         getattr(self.installed, name)(value),
                         '%s(%d)' % (name, value))

  def test_rates_are_those_of_the_installed_library(self):
    for name, values in (('ibv_rate_to_mult', range(-3, 40)),
                         ('ibv_rate_to_mbps', range(-3, 40)),
                         ('mult_to_ibv_rate', range(-3, 600)),
                         ('mbps_to_ibv_rate', range(-3, 1500000))):
      ours, theirs = getattr(self.ours, name), getattr(self.installed, name)
      for value in values:
        if ours(value) != theirs(value):
          self.fail('%s(%d) = %d' % (name, value, ours(value)))

  def test_kernel_structures_are_translated_as_by_the_installed_library(self):
    rng = random.Random(1)
    for name in ('ibv_copy_ah_attr_from_kern', 'ibv_copy_qp_attr_from_kern',
                 'ibv_copy_path_rec_from_kern', 'ibv_copy_path_rec_to_kern'):
      for _ in range(100):
        source = ctypes.create_string_buffer(rng.randbytes(512), 512)
        results = []
        for library in (self.ours, self.installed):
          result = ctypes.create_string_buffer(512)
          getattr(library, name)(result, source)
          results.append(result.raw)
        self.assertEqual(*results, msg=name)

  def test_reads_sysfs_files_as_the_installed_library(self):
    directory = os.environ['TEST_TMPDIR']
    for text in (b'', b'\n', b'4: ACTIVE\n', b'no newline', b'x' * 31):
      with open(os.path.join(directory, 'state'), 'wb') as out:
        out.write(text)
      answers = []
      for library in (self.ours, self.installed):
        buffer = ctypes.create_string_buffer(b'?' * 40, 40)
        length = library.ibv_read_sysfs_file(directory.encode(), b'state',
                                             buffer, 32)
        answers.append((length, buffer.raw))
      self.assertEqual(*answers, msg=repr(text))
    for library in (self.ours, self.installed):
      self.assertEqual(
          library.ibv_read_sysfs_file(b'/nowhere', b'state', buffer, 32), -1)

  def test_a_program_of_the_first_abi_is_refused_with_a_message(self):
    # In a child: the message comes once a process.
    program = '''
import ctypes, sys
library = ctypes.CDLL(sys.argv[1], use_errno=True)
dlvsym = ctypes.CDLL(None).dlvsym
dlvsym.restype = ctypes.c_void_p
dlvsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
old = dlvsym(library._handle, b"ibv_get_device_list", b"IBVERBS_1.0")
assert old is not None
function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(old)
assert function(None) is None
'''
    done = subprocess.run([sys.executable, '-c', program, _LIBRARY],
                          stderr=subprocess.PIPE, universal_newlines=True,
                          timeout=30)
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertIn('ibv_get_device_list', done.stderr)
    self.assertIn('link the program again', done.stderr)

  def test_what_is_not_implemented_says_so(self):
    ours = ctypes.CDLL(_LIBRARY, use_errno=True)
    ours.ibv_import_pd.restype = ctypes.c_void_p
    ctypes.set_errno(0)
    self.assertIsNone(ours.ibv_import_pd(None, 0))
    self.assertEqual(ctypes.get_errno(), 95)  # EOPNOTSUPP
    self.assertEqual(ours.ibv_attach_mcast(None, None, 0), 95)


if __name__ == '__main__':
  _LIBRARY = os.path.abspath(
      [path for path in sys.argv[1:] if path.endswith('libibverbs.so.1')][0])
  unittest.main(argv=sys.argv[:1])
