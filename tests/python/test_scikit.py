"""Models of scikit-learn, LightGBM and XGBoost as their converters write them, beside ONNX Runtime and themselves."""

import os
import warnings

import numpy as np
import onnx
import onnxruntime
import pytest

import tilewright as tw

os.environ.setdefault("OMP_NUM_THREADS", "1")  # their threads would spin beside those of other tests
pytest.importorskip("sklearn")

import lightgbm  # noqa: E402
import onnxmltools  # noqa: E402
import xgboost  # noqa: E402
from onnxmltools.convert.common.data_types import FloatTensorType  # noqa: E402
from skl2onnx import to_onnx  # noqa: E402
from skl2onnx.common.data_types import StringTensorType  # noqa: E402
from sklearn import ensemble, linear_model, naive_bayes, neighbors, neural_network, svm, tree  # noqa: E402
from sklearn.compose import ColumnTransformer  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import OneHotEncoder, StandardScaler  # noqa: E402


@pytest.fixture(autouse=True)
def plain_attributes(monkeypatch):
    """skl2onnx hands on numpy's integers, which onnx takes for no numbers."""
    make = onnx.helper.make_attribute

    def make_plain(name, value, *more, **named):
        if isinstance(value, list) and any(isinstance(item, np.integer) for item in value):
            value = [int(item) for item in value]
        return make(name, value, *more, **named)

    monkeypatch.setattr(onnx.helper, "make_attribute", make_plain)


NAMES = np.array(["setosa", "virginica", "Ärger", "no, none"])


def samples(classes, rows=300, columns=12, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, columns)).astype(np.float32)
    scores = x @ rng.standard_normal((columns, max(classes, 1))) + 0.3 * rng.standard_normal((rows, max(classes, 1)))
    return x, scores.argmax(1) if classes else scores[:, 0]


def as_matrix(scores):
    return np.array([list(row.values()) for row in scores]) if isinstance(scores, list) else scores


def check(source, feed, tolerance=1e-6, wanted=None):
    """Like ONNX Runtime: its sums in f32 are off by some 1e-6.  Like the model itself: labels are the same."""
    expected = onnxruntime.InferenceSession(source).run(None, feed)
    executable = tw.compile(tw.load(source))
    got = list(executable.run(feed).values())
    for have, want in zip(got, expected, strict=True):
        if isinstance(want, list):
            assert [list(row) for row in have] == [list(row) for row in want]
            have, want = as_matrix(have), as_matrix(want)
        assert have.shape == want.shape and have.dtype == want.dtype
        if have.dtype.kind == "f":
            np.testing.assert_allclose(have, want, rtol=5e-6, atol=5e-6)
    if wanted is not None and len(got) == 2:
        labels, scores = wanted
        np.testing.assert_array_equal(got[0], labels)
        if scores is not None:
            np.testing.assert_allclose(as_matrix(got[1]), scores, rtol=tolerance, atol=tolerance)
    elif wanted is not None:
        np.testing.assert_allclose(got[0].ravel(), wanted.ravel(), rtol=tolerance, atol=tolerance)
    few = {name: array[:3] for name, array in feed.items()}  # the batch is open
    for have, all_rows in zip(executable.run(few).values(), got, strict=True):
        np.testing.assert_array_equal(as_matrix(have), as_matrix(all_rows)[:3])
    return got


CLASSIFIERS = {
    "random_forest": lambda: ensemble.RandomForestClassifier(20, random_state=0),
    "extra_trees": lambda: ensemble.ExtraTreesClassifier(20, random_state=0),
    "gradient_boosting": lambda: ensemble.GradientBoostingClassifier(n_estimators=10, random_state=0),
    "hist_gradient_boosting": lambda: ensemble.HistGradientBoostingClassifier(max_iter=5, random_state=0),
    "decision_tree": lambda: tree.DecisionTreeClassifier(random_state=0),
    "ada_boost": lambda: ensemble.AdaBoostClassifier(n_estimators=10, random_state=0),
    "scaled_logistic_regression": lambda: make_pipeline(StandardScaler(), linear_model.LogisticRegression()),
    "linear_svc": lambda: svm.LinearSVC(random_state=0),
    "svc": lambda: svm.SVC(probability=True, random_state=0),
    "svc_of_votes": lambda: svm.SVC(kernel="poly"),
    "neighbours": lambda: neighbors.KNeighborsClassifier(),
    "naive_bayes": lambda: naive_bayes.GaussianNB(),
    "perceptron": lambda: neural_network.MLPClassifier((16,), max_iter=20, random_state=0),
}


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers(name, classes):
    x, y = samples(classes)
    labels = NAMES[y] if (classes + len(name)) % 2 else y * 3 - 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = CLASSIFIERS[name]().fit(x, labels)
        source = to_onnx(model, x[:1]).SerializeToString()
    scores = model.predict_proba(x) if hasattr(model, "predict_proba") else None
    check(source, {"X": x}, wanted=(model.predict(x), scores))


REGRESSORS = {
    "random_forest": lambda: ensemble.RandomForestRegressor(20, random_state=0),
    "extra_trees": lambda: ensemble.ExtraTreesRegressor(20, random_state=0),
    "gradient_boosting": lambda: ensemble.GradientBoostingRegressor(n_estimators=10, random_state=0),
    "hist_gradient_boosting": lambda: ensemble.HistGradientBoostingRegressor(max_iter=5, random_state=0),
    "svr": lambda: svm.SVR(),
    "linear_svr": lambda: svm.LinearSVR(random_state=0),
    "nu_svr": lambda: svm.NuSVR(kernel="sigmoid"),
    "ridge": lambda: linear_model.Ridge(),
}


@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors(name):
    x, y = samples(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = REGRESSORS[name]().fit(x, y)
        source = to_onnx(model, x[:1]).SerializeToString()
    check(source, {"X": x}, wanted=model.predict(x), tolerance=1e-5)


def test_missing_numbers():
    x, y = samples(3)
    x[np.random.default_rng(1).random(x.shape) < 0.2] = np.nan
    model = ensemble.HistGradientBoostingClassifier(max_iter=5, random_state=0).fit(x, y)
    source = to_onnx(model, x[:1]).SerializeToString()
    check(source, {"X": x}, wanted=(model.predict(x), model.predict_proba(x)))


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_lightgbm(classes):
    x, y = samples(classes)
    x[np.random.default_rng(1).random(x.shape) < 0.1] = np.nan
    kind = lightgbm.LGBMClassifier if classes else lightgbm.LGBMRegressor
    model = kind(n_estimators=10, n_jobs=1, verbose=-1).fit(x, y)
    source = onnxmltools.convert_lightgbm(model, initial_types=[("X", FloatTensorType([None, x.shape[1]]))])
    wanted = (model.predict(x), model.predict_proba(x)) if classes else model.predict(x)
    check(source.SerializeToString(), {"X": x}, wanted=wanted, tolerance=2e-6)


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_xgboost(classes):
    x, y = samples(classes)
    x[np.random.default_rng(1).random(x.shape) < 0.1] = np.nan
    kind = xgboost.XGBClassifier if classes else xgboost.XGBRegressor
    model = kind(n_estimators=10, n_jobs=1).fit(x, y)
    source = onnxmltools.convert_xgboost(model, initial_types=[("X", FloatTensorType([None, x.shape[1]]))])
    wanted = (model.predict(x), model.predict_proba(x)) if classes else model.predict(x)
    check(source.SerializeToString(), {"X": x}, wanted=wanted, tolerance=2e-6)


@pytest.mark.parametrize("columns", [1, 2])
def test_categories_that_are_strings(columns):
    rng = np.random.default_rng(0)
    words = rng.choice(NAMES, (200, columns)).astype(object)
    target = NAMES[(words[:, 0] == NAMES[2]) * 2 + (rng.random(200) < 0.3)]
    encode = [(f"word{k}", OneHotEncoder(handle_unknown="ignore"), [k]) for k in range(columns)]
    model = make_pipeline(ColumnTransformer(encode), linear_model.LogisticRegression()).fit(words, target)
    source = to_onnx(model, initial_types=[("w", StringTensorType([None, columns]))]).SerializeToString()
    got = check(source, {"w": words}, wanted=(model.predict(words), model.predict_proba(words)))
    assert got[0].dtype == object and isinstance(got[0][0], str)
    unknown = np.array([["unheard of"] * columns, words[0]], dtype=object)
    check(source, {"w": unknown}, wanted=(model.predict(unknown), model.predict_proba(unknown)))
