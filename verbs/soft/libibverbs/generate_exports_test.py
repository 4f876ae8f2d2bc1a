"""What is generated, from symbols of a release that does not exist."""

import unittest

from verbs.soft.libibverbs import generate_exports
from verbs.soft.libibverbs.symbol_table import Symbol, VersionNode


def _function(name, version, is_default=True):
  return Symbol(name, version, is_default, True, 16)


NODES = [VersionNode('V_1', None), VersionNode('V_2', 'V_1'),
         VersionNode('PRIVATE_99', None)]
SYMBOLS = [_function('get', 'V_1', is_default=False), _function('get', 'V_2'),
           _function('make', 'V_1'), _function('put', 'V_1'),
           Symbol('flag', 'PRIVATE_99', True, False, 3)]


class GenerateExportsTest(unittest.TestCase):

  def test_each_node_has_what_it_is_default_for_and_the_last_hides_the_rest(
      self):
    self.assertEqual(
        generate_exports.version_script(NODES, SYMBOLS),
        'V_1 {\n  global:\n    make;\n    put;\n};\n'
        'V_2 {\n  global:\n    get;\n} V_1;\n'
        'PRIVATE_99 {\n  global:\n    flag;\n  local:\n    *;\n};\n')

  def _stubs(self, implemented):
    return generate_exports.stubs(SYMBOLS, implemented,
                                  lambda name: name == 'make')

  def test_what_is_implemented_gets_no_stub_but_its_old_versions_do(self):
    text = self._stubs({'get', 'make', 'put', 'flag'})
    self.assertIn('.symver old_V_1_get, get@V_1"', text)
    self.assertNotIn('int get(', text)
    self.assertNotIn('make', text)

  def test_a_function_that_returns_a_pointer_fails_with_null(self):
    text = self._stubs({'get', 'put', 'flag'})
    self.assertIn('void* make(void) {\n  NotSupported();\n  return NULL;', text)

  def test_any_other_function_fails_with_an_errno(self):
    self.assertIn('int put(void) { return NotSupported(); }',
                  self._stubs(set()))

  def test_data_has_the_size_of_the_original(self):
    self.assertIn('unsigned char flag[3]', self._stubs(set()))


if __name__ == '__main__':
  unittest.main()
