
"use strict";
(function () {
  // Copy buttons. The text is in the page already, so without script, or where
  // the clipboard is closed, it can be selected with one click.
  document.querySelectorAll(".copy button").forEach(function (b) { b.hidden = false; });
  function say(b, text) {
    b.textContent = text;
    setTimeout(function () { b.textContent = "Copy"; }, 1500);
  }
  function select(code) {
    var range = document.createRange();
    range.selectNodeContents(code);
    var s = getSelection();
    s.removeAllRanges();
    s.addRange(range);
  }
  document.addEventListener("click", function (e) {
    var b = e.target.closest ? e.target.closest(".copy button") : null;
    if (!b) return;
    var code = b.parentNode.querySelector("code");
    function fallback() {
      select(code);
      say(b, document.execCommand("copy") ? "Copied" : "Press Ctrl+C");
    }
    if (navigator.clipboard && navigator.clipboard.writeText) {
      navigator.clipboard.writeText(code.textContent).then(function () { say(b, "Copied"); }, fallback);
    } else {
      fallback();
    }
  });

  var table = document.getElementById("badkeys");
  if (!table) return;
  var search = document.getElementById("search");
  var reason = document.getElementById("reason");
  var found = document.getElementById("found");
  var none = document.getElementById("none");
  document.getElementById("tools").hidden = false;
  var rows = Array.prototype.map.call(table.tBodies[0].rows, function (tr) {
    // What the repair lines say is not what people look for.
    var text = "";
    Array.prototype.forEach.call(tr.cells, function (td) {
      Array.prototype.forEach.call(td.childNodes, function (n) {
        if (n.nodeName !== "DETAILS") text += n.textContent + " ";
      });
    });
    return { tr: tr, text: text.toLowerCase(), reason: tr.dataset.reason };
  });
  function filter() {
    var words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    var n = 0;
    rows.forEach(function (r) {
      var show = (!reason.value || r.reason === reason.value) &&
        words.every(function (w) { return r.text.indexOf(w) >= 0; });
      r.tr.hidden = !show;
      if (show) n++;
    });
    found.textContent = n === rows.length ? n + " keys" : n + " of " + rows.length + " keys";
    none.hidden = n > 0;
  }
  search.addEventListener("input", filter);
  reason.addEventListener("change", filter);
  filter();
})();
