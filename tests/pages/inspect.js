// Looks at the page that it stands in, and leaves what it found in place of it.
addEventListener("load", () => {
  const problems = [];
  const name = (svg) => svg.getAttribute("aria-label") || svg.querySelector("title")?.textContent || "a picture";
  for (const details of document.querySelectorAll("details")) details.open = true;

  const wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) problems.push(`the page is ${wide} wide, ${innerWidth} are shown`);
  const loaded = performance.getEntriesByType("resource").map((entry) => entry.name);
  for (const one of loaded) problems.push(`it loads ${one}`);

  // Luminance of a computed colour.
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\d.]+/g).map((c) => Number(c) / 255);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  let texts = 0;
  const pictures = [...document.querySelectorAll("svg")];
  for (const svg of pictures) {
    const box = svg.getBoundingClientRect();
    const complain = (what) => problems.push(`${name(svg)}: ${what}`);
    if (box.width < 50 || box.height < 50) complain(`is ${box.width} by ${box.height}`);
    const shapes = [...svg.querySelectorAll("rect,circle,line,polyline,polygon,path,ellipse")].filter((shape) => {
      const { width, height } = shape.getBBox();
      return width > 0 || height > 0;
    });
    if (shapes.length < 3) complain(`has ${shapes.length} shapes`);
    const surface = svg.querySelector("rect");
    const behind = surface && light(getComputedStyle(surface).fill);
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    if (behind !== null && behind < 0.5 !== dark) complain(`has the wrong background, of luminance ${behind}`);
    const words = [...svg.querySelectorAll("text")].filter((text) => text.textContent.trim());
    if (!words.length) complain("has no words");
    texts += words.length;
    const boxes = words.map((text) => text.getBoundingClientRect());
    words.forEach((text, i) => {
      const word = boxes[i];
      const said = JSON.stringify(text.textContent.trim());
      if (!word.width || !word.height) complain(`${said} is not drawn`);
      const out = Math.max(box.left - word.left, box.top - word.top, word.right - box.right, word.bottom - box.bottom);
      // Machines draw the same font a few hundredths wider or narrower.
      if (out > 1 + 0.03 * word.width) complain(`${said} leaves it by ${out.toFixed(1)}`);
      if (behind !== null && Math.abs(light(getComputedStyle(text).fill) - behind) < 0.2) complain(`${said} cannot be read`);
      for (let j = 0; j < i; j++) {
        const across = Math.min(word.right, boxes[j].right) - Math.max(word.left, boxes[j].left);
        const down = Math.min(word.bottom, boxes[j].bottom) - Math.max(word.top, boxes[j].top);
        const smaller = Math.min(word.width, boxes[j].width);
        // Lines of text lie close; what covers a fifth of a word in both directions hides it.
        if (across > 0.2 * smaller && down > 0.4 * Math.min(word.height, boxes[j].height))
          complain(`${said} lies over ${JSON.stringify(words[j].textContent.trim())}`);
      }
    });
  }
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const found = { problems, pictures: pictures.length, texts, width: innerWidth, dark };
  document.documentElement.innerHTML = "<body><pre></pre></body>";
  document.querySelector("pre").textContent = "found" + JSON.stringify(found) + "end";
});
