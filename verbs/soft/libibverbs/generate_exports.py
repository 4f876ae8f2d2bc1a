"""Makes our libibverbs.so.1 export what the installed one exports.

usage: generate_exports.py INSTALLED_LIBRARY OUR_ARCHIVE MAP_OUT STUBS_OUT

Reads the dynamic symbols of the installed library and what OUR_ARCHIVE defines.
Writes a version script with every version node and symbol, and a C source with
the symbols that we don't implement.
"""

import re
import subprocess
import sys

from verbs.soft.libibverbs import symbol_table

# Of libibverbs' interface to its drivers, which no installed header declares:
# functions that return the object that they make.
_MAKES_OBJECT = re.compile(r'^_?verbs_\w*(alloc_context|open_device)$')

_STUBS_HEADER = '''\
// Generated from the installed libibverbs.so.1: what it exports and the software
// device has no implementation of. A call fails with EOPNOTSUPP.
#include <errno.h>
#include <stddef.h>
#include <stdio.h>

__attribute__((unused)) static int NotSupported(void) {
  errno = EOPNOTSUPP;
  return EOPNOTSUPP;
}

// Once a process: a refused program usually ends at the first call.
__attribute__((unused)) static int TooOld(const char* function) {
  static int told = 0;
  if (!__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED)) {
    fprintf(stderr,
            "libibverbs (software device): this program was linked against a "
            "libibverbs older than 1.1, whose structures differ, and %s of it "
            "is not provided; link the program again\\n",
            function);
  }
  errno = EOPNOTSUPP;
  return EOPNOTSUPP;
}
'''


def pointer_functions():
  """The names of functions that the installed headers say return a pointer."""
  headers = ''.join(
      '#include <infiniband/%s.h>\n' % name for name in ('verbs', 'sa'))
  text = subprocess.run(['cc', '-E', '-P', '-x', 'c', '-'], input=headers,
                        check=True, stdout=subprocess.PIPE,
                        universal_newlines=True).stdout
  return set(re.findall(r'\*\s*(\w+)\s*\(', text))


def version_script(nodes, symbols):
  """A linker version script: each node has the symbols that it is default for.

  Symbols that are not the default come from .symver lines in the stubs, and
  need no more than that their node exists.
  """
  lines = []
  for index, node in enumerate(nodes):
    names = [symbol.name for symbol in symbols
             if symbol.version == node.name and symbol.is_default]
    lines.append('%s {' % node.name)
    if names:
      lines.append('  global:')
      lines += ['    %s;' % name for name in names]
    if index == len(nodes) - 1:
      lines += ['  local:', '    *;']
    lines.append('}%s;' % (' ' + node.parent if node.parent else ''))
  return '\n'.join(lines) + '\n'


def stub(symbol, makes_object):
  """The C definition of a symbol that we don't implement."""
  definition = symbol.name
  lines = ['']
  if not symbol.is_default:
    definition = 'old_%s_%s' % (re.sub(r'\W', '_', symbol.version), symbol.name)
    failure = 'TooOld("%s")' % symbol.name
  else:
    failure = 'NotSupported()'
  if not symbol.is_function:
    lines.append('_Alignas(max_align_t) unsigned char %s[%d] = {0};' %
                 (definition, max(symbol.size, 1)))
  elif makes_object:
    lines += ['// Returns a pointer: NULL, with errno.',
              'void* %s(void);' % definition,
              'void* %s(void) {' % definition,
              '  %s;' % failure,
              '  return NULL;',
              '}']
  else:
    lines += ['int %s(void);' % definition,
              'int %s(void) { return %s; }' % (definition, failure)]
  if not symbol.is_default:
    lines.append('__asm__(".symver %s, %s@%s");' %
                 (definition, symbol.name, symbol.version))
  return '\n'.join(lines) + '\n'


def stubs(symbols, implemented, makes_object):
  """The C source of every symbol that is not implemented."""
  # A version other than the default is another function, with other structs.
  missing = [symbol for symbol in symbols
             if not symbol.is_default or symbol.name not in implemented]
  return _STUBS_HEADER + ''.join(
      stub(symbol, makes_object(symbol.name)) for symbol in missing)


def main(installed, archive, map_path, stubs_path):
  symbols = symbol_table.exported_symbols(installed)
  nodes = symbol_table.version_nodes(installed)
  if not symbols or not nodes:
    sys.exit('%s exports no versioned symbols: is this libibverbs?' % installed)
  declared = pointer_functions()
  with open(map_path, 'w') as out:
    out.write(version_script(nodes, symbols))
  with open(stubs_path, 'w') as out:
    out.write(stubs(symbols, symbol_table.defined_names(archive),
                    lambda name: name in declared or
                    bool(_MAKES_OBJECT.match(name))))


if __name__ == '__main__':
  if len(sys.argv) != 5:
    sys.exit(__doc__)
  main(*sys.argv[1:])
