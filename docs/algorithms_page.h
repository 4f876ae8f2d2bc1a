// The page docs/algorithms.md, made from the registry of algorithms.
#ifndef RINGPIPE_DOCS_ALGORITHMS_PAGE_H_
#define RINGPIPE_DOCS_ALGORITHMS_PAGE_H_

#include <string>

namespace ringpipe {

std::string AlgorithmsPage();

}  // namespace ringpipe

#endif  // RINGPIPE_DOCS_ALGORITHMS_PAGE_H_
