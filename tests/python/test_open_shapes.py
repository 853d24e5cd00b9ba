"""Shapes as exporters compute them of open dimensions: what they demand of these, against ONNX Runtime."""

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import tilewright as tw

HEAD = '<ir_version: 9, opset_import: ["" : 20]>\n'


def parsed(text, last=None):
    model = onnx.parser.parse_model(HEAD + text)
    onnx.checker.check_model(model)
    if last:
        model.graph.node[-1].name = last
    return model.SerializeToString()


def check(model, *feeds):
    """The executable, after it agreed with ONNX Runtime, which has to run every feed."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
    executable = tw.compile(tw.load(model))
    for feed in feeds:
        for wanted, got in zip(session.run(None, feed), executable.run(feed).values(), strict=True):
            assert got.shape == wanted.shape
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
    return executable


def random(*shape):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


UNSHUFFLED = {
    "one dimension": """g (float[batch,8,height,width] x) => (float[a,b,c,d,e] y)
        <int64[5] s={0,0,-1,2,0}, int64[1] three={3}> { u=Unsqueeze(x,three) y=Reshape(u,s) }""",
    "both, in turn": """g (float[batch,8,height,width] x) => (float[a,b,c,d,e,f] y)
        <int64[5] s={0,0,-1,2,0}, int64[1] three={3}, int64[6] t={0,0,0,0,-1,2}>
        { u=Unsqueeze(x,three) v=Reshape(u,s) y=Reshape(v,t) }""",
    "both, by quotients": """g (float[batch,8,height,width] x) => (float[a,b,c,d,e,f] y)
        <int64[1] two={2}, int64[1] c={8}, int64[1] m={-1}>
        { h=Shape<start=2,end=3>(x) w=Shape<start=3,end=4>(x) hh=Div(h,two) ww=Div(w,two)
          s=Concat<axis=0>(m,c,hh,two,ww,two) y=Reshape(x,s) }""",
}


@pytest.mark.parametrize("case", UNSHUFFLED)
def test_what_is_left_over_divides(case):
    executable = check(parsed(UNSHUFFLED[case]), {"x": random(1, 8, 6, 4)}, {"x": random(3, 8, 2, 10)})
    with pytest.raises(tw.Error, match=r"TW1101 .*height // 2\) \* .*Reshape"):
        executable.run({"x": random(1, 8, 5, 4)})


def test_what_passes_make_of_equal_sizes():
    """A product of rows with rows, as of all positions of two images, before the size that they are is another one."""
    text = """g (float[batch,1,height,4] x) => (float[a,b] y, float[c,d,e,f] z)
        { p=MaxPool<kernel_shape=[1,1],strides=[8,1]>(x) t=Transpose<perm=[0,1,3,2]>(p) m=MatMul(p,t)
          n=Shape<end=1>(m) h=Shape<start=2,end=3>(m) rows=Mul(n,h) s=Concat<axis=0>(rows,h) y=Reshape(m,s)
          q=MaxPool<kernel_shape=[8,1],strides=[8,1]>(x) z=Add(p,q) }"""
    executable = check(parsed(text), {"x": random(1, 1, 16, 4)}, {"x": random(3, 1, 40, 4)})
    with pytest.raises(tw.Error, match=r"TW1101 .*height \+ 7\) // 8` is 3, but `height // 8` is 2; .*Add"):
        executable.run({"x": random(1, 1, 17, 4)})


def test_what_grows_with_a_dimension_bounds_it():
    """A vision transformer whose positions are those of one size: (height // 32)² + 1 = 50."""
    model = parsed("""g (float[1,1,height,height] x, float[1,50] positions) => (float[a,b] y)
        <int64 bound={32}, int64 one={1}, int64 two={2}, int64[1] m={-1}, int64[1] ones={1}, float zero={0}>
        { h=Shape<start=2,end=3>(x) hs=Squeeze(h) rows=Div(hs,bound) count=Pow(rows,two) all=Add(count,one)
          n=Reshape(all,m) s=Concat<axis=0>(ones,n) z=Expand(zero,s) y=Add(z,positions) }""")
    executable = check(model, {"x": random(1, 1, 224, 224), "positions": random(1, 50)})
    assert executable.dimensions == {"height": (224, 255)}


def test_what_a_run_reads_gives_way_to_what_is_known_before():
    """By its name the size that is read is the shorter one of two that are equal."""
    text = """g (float[n,4] a, float[m,4] b, float[1,1,k] x) => (float[u,v,w] y)
        <int64[1] zero={0}, int64[1] neg={-1}, int64 minus={-1}>
        { n1=Shape<end=1>(a) m1=Shape<end=1>(b) q=Sub(n1,m1) s=Concat<axis=0>(q,neg,neg) length=Shape(s)
          ones=ConstantOfShape<value=int64[1]{1}>(length) unsaid=Mul(ones,minus) is_unsaid=Equal(s,unsaid)
          shape=Where(is_unsaid,ones,s) c=AveragePool<kernel_shape=[2],strides=[2]>(x) y=Expand(c,shape) }"""
    feeds = [{"a": random(n, 4), "b": random(3, 4), "x": random(1, 1, k)} for n, k in ((5, 6), (4, 9))]
    check(parsed(text, last="E"), *feeds)


def test_expand_by_a_quotient_of_sizes():
    text = """g (float[batch,h,w] x, float[k] z) => (float[a,b] y)
        <int64[1] m={-1}, int64 minus={-1}, int64[2] windows={-1,49}, int64[1] zero={0}>
        { win=Reshape(x,windows) i=Reshape(z,windows) nb=Shape<end=1>(win) nw=Shape<end=1>(i) q=Div(nb,nw)
          s=Concat<axis=0>(q,m) length=Shape(s) ones=ConstantOfShape<value=int64[1]{1}>(length)
          unsaid=Mul(ones,minus) is_unsaid=Equal(s,unsaid) shape=Where(is_unsaid,ones,s) u=Unsqueeze(z,zero)
          y=Expand(u,shape) }"""
    check(parsed(text), {"x": random(2, 21, 14), "z": random(147)}, {"x": random(1, 7, 7), "z": random(49)})


def test_a_bound_of_a_slice_that_may_be_negative_or_not():
    text = """g (float[n,4] x) => (float[u,4] y, float[v,4] z, float[w,4] r)
        <int64[1] zero={0}, int64[1] ten={10}, int64[1] end={9223372036854775807}, int64[1] back={-1},
         int64[1] begin={-9223372036854775807}>
        { n=Shape<end=1>(x) s=Sub(n,ten) y=Slice(x,s,end,zero) z=Slice(x,zero,s,zero)
          r=Slice(x,s,begin,zero,back) }"""
    check(parsed(text), *({"x": random(n, 4)} for n in (1, 3, 5, 9, 10, 11, 15, 30)))


def test_a_model_that_runs_at_one_product_of_sizes():
    """As an exporter leaves it that took the number of patches of one image for a constant: 160 × 256, and a batch."""
    text = """g (float[batch,1,height,width] x) => (float[a,160] y)
        <int64[3] all={0,1,-1}>
        { p=MaxPool<kernel_shape=[16,16],strides=[16,16]>(x) f=Reshape(p,all) s=Shape<end=1>(x)
          m=Constant<value_ints=[160]>() shape=Concat<axis=0>(s,m) y=Reshape(f,shape) }"""
    check(parsed(text), {"x": random(1, 1, 160, 256)}, {"x": random(2, 1, 256, 160)})


def test_weights_that_are_standardised_in_the_model():
    """By a normalisation in training mode, which takes the statistics of its data: here of a constant."""
    text = """g (float[batch,4,height,width] x) => (float[a,8,b,c] y)
        <int64[3] flat={1,8,-1}, int64[4] window={8,4,3,3}>
        { f=Reshape(weight,flat) n, m, v = BatchNormalization<training_mode=1,epsilon=0.0001>(f,scale,zero,zero,one)
          w=Reshape(n,window) y=Conv<pads=[1,1,1,1]>(x,w) }"""
    rng = np.random.default_rng(3)
    weight = rng.standard_normal((8, 4, 3, 3)).astype(np.float32) + 2
    scale, zero = np.linspace(0.5, 1.5, 8, dtype=np.float32), np.zeros(8, np.float32)
    model = onnx.parser.parse_model(HEAD + text)
    for name, array in (("weight", weight), ("scale", scale), ("zero", zero), ("one", zero + 1)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    check(model.SerializeToString(), {"x": random(1, 4, 9, 7)}, {"x": random(3, 4, 16, 20)})


def test_what_stays_when_a_dimension_grows_bounds_it_from_below_alone():
    model = parsed("""g (float[n] x, float[256] positions) => (float[a] y)
        <int64[1] most={512}, int64[1] two={2}, float zero={0}>
        { n=Shape(x) few=Min(n,most) half=Div(few,two) z=Expand(zero,half) y=Add(z,positions) }""")
    feeds = [{"x": random(n), "positions": random(256)} for n in (512, 2**20 + 7)]
    assert check(model, *feeds).dimensions == {"n": (512, None)}
