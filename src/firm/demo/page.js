// The loupe: what lies under the pointer, before and after, at 100 % or twice as large as the page shows it.
{
  const look = (box, x, y) => {
    const images = [...box.querySelectorAll("img")].filter(i => i.naturalWidth && i.checkVisibility());
    const panes = [...document.querySelectorAll("#loupe [data-side]")];
    if (images.length < 2 || panes.length < 2) return;
    const place = images[0].getBoundingClientRect(), wide = images[0].naturalWidth, high = images[0].naturalHeight;
    const shown = Math.min(place.width / wide, place.height / high);
    const zoom = Math.max(1 / devicePixelRatio, Math.min(8, 2 * shown));
    const at = (from, side, pixels) => Math.min(1, Math.max(0, (from - side / 2) / (shown * pixels) + 0.5));
    const u = x === undefined ? 0.5 : at(x - place.left, place.width, wide);
    const v = y === undefined ? 0.5 : at(y - place.top, place.height, high);
    panes.forEach((pane, i) => {
      pane.style.backgroundImage = `url("${images[i].src}")`;
      pane.style.backgroundSize = `${wide * zoom}px ${high * zoom}px`;
      pane.style.backgroundPosition =
        `${pane.clientWidth / 2 - u * wide * zoom}px ${pane.clientHeight / 2 - v * high * zoom}px`;
    });
    document.querySelector("#loupe b").textContent = `${Math.round(100 * zoom * devicePixelRatio)} %`;
  };
  const moved = event => {
    const box = event.target.closest?.("#slider");
    if (box) look(box, event.clientX, event.clientY);
  };
  document.addEventListener("click", event => {  // on a phone, what comes of it lies below
    const status = event.target.closest?.("#restore") && document.querySelector("#status");
    if (status && status.getBoundingClientRect().bottom > innerHeight) status.scrollIntoView({behavior: "smooth"});
  });
  document.addEventListener("pointermove", moved);
  document.addEventListener("pointerdown", moved);
  document.addEventListener("load", event => {
    const box = event.target.closest?.("#slider");
    if (!box) return;
    setTimeout(() => look(box), 300);  // the panes come with it
    if (box.getBoundingClientRect().top > innerHeight) document.querySelector("#status").scrollIntoView();
  }, true);
}
