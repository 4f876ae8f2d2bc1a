// Whether a page of docs/ is what its program prints.
#ifndef RINGPIPE_DOCS_PAGE_FILE_H_
#define RINGPIPE_DOCS_PAGE_FILE_H_

#include <fstream>
#include <sstream>
#include <string>

#include "gtest/gtest.h"

namespace ringpipe {

// docs/NAME.md, which `bazel run //docs:NAME` prints.
inline void ExpectPageIsInFile(const std::string& name,
                               const std::string& page) {
  const std::string path = "docs/" + name + ".md";
  std::ifstream file(path);
  ASSERT_TRUE(file.is_open()) << path << " is missing";
  std::ostringstream text;
  text << file.rdbuf();
  std::istringstream file_lines(text.str());
  std::istringstream page_lines(page);
  std::string in_file;
  std::string in_page;
  for (int line = 1; text.str() != page; ++line) {
    std::getline(file_lines, in_file);
    std::getline(page_lines, in_page);
    ASSERT_EQ(in_file, in_page)
        << "Line " << line << " of " << path << " is not what the code gives. "
        << "Make it anew:\nbazel run //docs:" << name << " > " << path;
    ASSERT_TRUE(file_lines.good() && page_lines.good()) << "The end differs";
  }
}

}  // namespace ringpipe

#endif  // RINGPIPE_DOCS_PAGE_FILE_H_
