"""What a shared library or an archive defines, as binutils' readelf says."""

import collections
import os
import re
import subprocess

# version: None where a symbol has none; is_default: of several versions the one
# that a program gets that is linked today. size: bytes.
Symbol = collections.namedtuple(
    'Symbol', ['name', 'version', 'is_default', 'is_function', 'size'])

# A version node and the node that it inherits from; None: from none.
VersionNode = collections.namedtuple('VersionNode', ['name', 'parent'])


def _readelf(path, *arguments):
  return subprocess.run(['readelf', '--wide', *arguments, path], check=True,
                        stdout=subprocess.PIPE, universal_newlines=True,
                        env=dict(os.environ, LC_ALL='C')).stdout


# Num: Value Size Type Bind Vis Ndx Name, the size in hex if it is large.
_SYMBOL_LINE = re.compile(
    r'^\s*\d+: [0-9a-f]+\s+(0x[0-9a-f]+|\d+) (\w+)\s+(GLOBAL|WEAK|UNIQUE)\s+'
    r'(\w+)(?: +\[[^]]*\])?\s+(\w+) (\S+)', re.MULTILINE)


def _symbols(listing):
  for size, kind, _, visibility, section, name in _SYMBOL_LINE.findall(listing):
    if section in ('UND', 'ABS') or visibility in ('HIDDEN', 'INTERNAL'):
      continue
    name, at, version = name.partition('@')
    is_default = not at or version.startswith('@')
    yield Symbol(name, version.lstrip('@') or None, is_default,
                 kind in ('FUNC', 'IFUNC'), int(size, 0))


def exported_symbols(library):
  """The dynamic symbols that `library` defines, in order of their names."""
  return sorted(_symbols(_readelf(library, '--dyn-syms')))


def defined_names(archive):
  """The names of the visible symbols that the objects of `archive` define."""
  return {symbol.name for symbol in _symbols(_readelf(archive, '--symbols'))}


def version_nodes(library):
  """The version nodes of `library`, each after the one it inherits from."""
  nodes = []
  # The lines of a node: "Flags: .. Index: .. Name: N", "Parent 1: P".
  definitions = _readelf(library, '--version-info').partition(
      'Version definition section')[2].partition('Version needs section')[0]
  for line in definitions.splitlines():
    node = re.search(r'Flags: (\S+)\s.*Name: (\S+)', line)
    parent = re.search(r'Parent \d+: (\S+)', line)
    if node and node.group(1) != 'BASE':
      nodes.append(VersionNode(node.group(2), None))
    elif parent and nodes:
      nodes[-1] = nodes[-1]._replace(parent=parent.group(1))
  return nodes
