// The page docs/interface.md, made from the table of collectives.
#ifndef RINGPIPE_DOCS_INTERFACE_PAGE_H_
#define RINGPIPE_DOCS_INTERFACE_PAGE_H_

#include <string>

namespace ringpipe {

std::string InterfacePage();

}  // namespace ringpipe

#endif  // RINGPIPE_DOCS_INTERFACE_PAGE_H_
