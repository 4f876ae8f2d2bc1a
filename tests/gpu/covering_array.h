// A few rows of a table of cases in which every two values meet that meet in
// any row: a covering array of strength 2 (Cohen et al., "The AETG System",
// IEEE TSE 23(7), 1997). A mistake that needs a third value too may escape it.
#ifndef RINGPIPE_TESTS_GPU_COVERING_ARRAY_H_
#define RINGPIPE_TESTS_GPU_COVERING_ARRAY_H_

#include <functional>
#include <vector>

namespace ringpipe::testing {

// A value of each dimension, as a number from 0.
using Row = std::vector<int>;

// Every row that is `allowed`, where dimension d has values[d] values, which is
// 1 at least.
std::vector<Row> AllRows(const std::vector<int>& values,
                         const std::function<bool(const Row&)>& allowed);

// Of `rows`, which have equally many dimensions, so many that every two values
// which are together in a row are so in one of these. `seed` says which, where
// some would do equally well.
std::vector<Row> CoverPairs(std::vector<Row> rows, unsigned seed);

}  // namespace ringpipe::testing

#endif  // RINGPIPE_TESTS_GPU_COVERING_ARRAY_H_
