# The names of `import recombine as rc`, for editors and type checkers. A test keeps them equal to __init__.py.
from recombine.config.schema import Config as Config
from recombine.errors import InputError as InputError
from recombine.model.interface import Output as Output
from recombine.model.interface import Trace as Trace
from recombine.notebook.collection import draw as draw
from recombine.notebook.collection import runs as runs
from recombine.notebook.configure import configure as configure
from recombine.notebook.examine import examine as examine
from recombine.notebook.load import load as load
from recombine.notebook.predict import patch as patch
from recombine.notebook.predict import predict as predict
from recombine.notebook.sample import sample as sample
from recombine.notebook.train import train as train

__version__: str
