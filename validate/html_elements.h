// What HTML pages are made of.
#ifndef RINGPIPE_VALIDATE_HTML_ELEMENTS_H_
#define RINGPIPE_VALIDATE_HTML_ELEMENTS_H_

#include <cstddef>
#include <string>
#include <vector>

namespace ringpipe::validate {

// A text as HTML.
std::string Escape(const std::string& text);

// `tag` may have attributes; `content` is HTML.
std::string Element(const std::string& tag, const std::string& content);

// A table with a caption; cells are HTML. On a narrow screen each row is a
// list, a line for each cell, so that no column is cut off.
class Table {
 public:
  // The first `left` columns are texts.
  Table(const std::string& caption, std::vector<std::string> head,
        std::size_t left);
  // `id`: of the row, for links to it; empty: it has none.
  void Add(const std::vector<std::string>& cells, const std::string& id = "");
  std::string End() { return html_ + "</tbody></table></div>\n"; }

 private:
  std::string Row(const std::vector<std::string>& cells, bool is_head,
                  const std::string& id) const;

  const std::vector<std::string> head_;
  const std::size_t left_;
  std::string html_;
};

// How often values, from 0 to kMostRatio, fall where, as bars with an axis each
// way; below `marked` in orange.
std::string Histogram(const std::vector<double>& ratios, double marked);

}  // namespace ringpipe::validate

#endif  // RINGPIPE_VALIDATE_HTML_ELEMENTS_H_
